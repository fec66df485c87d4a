"""Keeping to a member's lease, and stopping what runs."""

from __future__ import annotations

import asyncio
from typing import Any

from partage.client.group.driver import now_ms
from partage.client.membership import Membership


def remaining_lease_ms(membership: Membership, margin_ms: int) -> int:
    """For how long the membership is sure, less the margin; 0 or less if it is not."""
    ends_ms = membership.exclusive_until_ms
    return 0 if ends_ms is None else ends_ms - margin_ms - now_ms()


async def wait_lease_expired(membership: Membership, margin_ms: int) -> None:
    """Return once the membership is not sure any more."""
    while (left := remaining_lease_ms(membership, margin_ms)) > 0:  # noqa: ASYNC110
        await asyncio.sleep(left / 1000)


async def wait_lease_valid(membership: Membership, margin_ms: int) -> bool:
    """Wait until the membership is sure, as it is after a heartbeat at the latest.

    False if it is not: the standing has ended, or the group rebalances and waits for this member.
    """
    standing, every_ms = membership.current_assignment, membership.settings.heartbeat_interval_ms
    until_ms = now_ms() + 2 * every_ms
    while remaining_lease_ms(membership, margin_ms) <= 0:
        if membership.current_assignment is not standing or now_ms() >= until_ms:
            return False
        await asyncio.sleep(every_ms / 4000)
    return True


async def cancel_and_wait(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task, and wait until it has ended, unless it is the one that asks."""
    if task is not None and task is not asyncio.current_task():
        task.cancel()
        await asyncio.wait({task})


def stop_margin_ms(membership: Membership, wanted_ms: int | None) -> int:
    """How long before the lease ends work is to stop: a heartbeat interval if nothing is said.

    Raises:
        ValueError: nothing of the session would be left to work in.
    """
    settings = membership.settings
    margin_ms = settings.heartbeat_interval_ms if wanted_ms is None else wanted_ms
    usable_ms = min(settings.session_timeout_ms, settings.rebalance_timeout_ms) - margin_ms
    if margin_ms < 0 or usable_ms <= settings.heartbeat_interval_ms:
        raise ValueError(
            f"stop_ms={margin_ms} leaves {usable_ms} ms of the session to work in; this must be "
            f"more than heartbeat_interval_ms ({settings.heartbeat_interval_ms})"
        )
    return margin_ms
