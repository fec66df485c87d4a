"""Lease renewal, on a clock that includes suspended time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from partage.broker.clock import Clock
from partage.store.lease import Lease
from partage.store.zookeeper import InDoubtError, Session, SessionEndedError

#: Renewals per session timeout. The leader has certainly heard of a probe after a third of the
#: timeout. Three renewal intervals are longer than that, so the lease counts from the probe three
#: intervals ago, not four.
_RENEWALS: Final = 8


async def renew_lease(
    lease: Lease, session: Session, clock: Clock, renewed: Callable[[], None]
) -> None:
    """Renew a lease until the session ends; call ``renewed`` each time it becomes valid again."""
    with contextlib.suppress(SessionEndedError):
        while True:
            sent_ms = clock.boot_ms()
            try:
                await session.ping_leader()
            except InDoubtError:
                await session.wait_connected()
                continue
            answered_ms = clock.boot_ms()
            held = lease.is_valid(answered_ms)
            lease.renew(sent_ms, answered_ms)
            if not held and lease.is_valid(clock.boot_ms()):
                renewed()
            rest_ms = session.timeout_ms / _RENEWALS - (answered_ms - sent_ms)
            await asyncio.sleep(max(0, rest_ms) / 1000)
