"""Helpers that keep work within a member's lease."""

from __future__ import annotations

import asyncio
from typing import Any

from partage.client.group.driver import now_ms
from partage.client.membership import Membership
from partage.model.arguments import InvalidArgumentError, check_int


def remaining_lease_ms(membership: Membership, margin_ms: int) -> int:
    """Return the rest of the lease in ms, less a margin; 0 or less if it has ended."""
    ends_ms = membership.exclusive_until_ms
    return 0 if ends_ms is None else ends_ms - margin_ms - now_ms()


async def wait_lease_expired(membership: Membership, margin_ms: int) -> None:
    """Wait until the lease, less a margin, has ended."""
    while (left := remaining_lease_ms(membership, margin_ms)) > 0:  # noqa: ASYNC110
        await asyncio.sleep(left / 1000)


async def wait_lease_valid(membership: Membership, margin_ms: int) -> bool:
    """Wait until the lease is valid, which takes at most one successful heartbeat.

    Return False if the assignment ended, or if the group is rebalancing and waits for this member.
    """
    assignment, every_ms = membership.current_assignment, membership.settings.heartbeat_interval_ms
    until_ms = now_ms() + 2 * every_ms
    while remaining_lease_ms(membership, margin_ms) <= 0:
        if membership.current_assignment is not assignment or now_ms() >= until_ms:
            return False
        await asyncio.sleep(every_ms / 4000)
    return True


async def cancel_and_wait(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait for its end, unless it is the calling task."""
    if task is not None and task is not asyncio.current_task():
        task.cancel()
        await asyncio.wait({task})


def stop_margin_ms(membership: Membership, wanted_ms: int | None) -> int:
    """Return the time in ms before the end of the lease at which work must stop.

    Args:
        wanted_ms: The user's choice; ``heartbeat_interval_ms`` if None.

    Raises:
        InvalidArgumentError: The margin leaves no time in a session to work.
    """
    if wanted_ms is not None:
        check_int("stop_ms", wanted_ms, unit="ms")
    settings = membership.settings
    margin_ms = settings.heartbeat_interval_ms if wanted_ms is None else wanted_ms
    usable_ms = min(settings.session_timeout_ms, settings.rebalance_timeout_ms) - margin_ms
    if usable_ms <= settings.heartbeat_interval_ms:
        raise InvalidArgumentError(
            f"stop_ms={margin_ms} leaves {usable_ms} ms of the session to work in; this must be "
            f"more than heartbeat_interval_ms ({settings.heartbeat_interval_ms})"
        )
    return margin_ms
