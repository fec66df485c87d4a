"""A group consumer as a process: ``SERVERS GROUP TOPIC SESSION_TIMEOUT_MS NAME [PROTOCOL]``.

It reads until its standard input ends, and then leaves the group.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from partage.sync import Consumer


def main() -> None:
    servers, group, topic, session_timeout_ms, name, *protocol = sys.argv[1:]
    options: dict[str, Any] = {
        "session_timeout_ms": int(session_timeout_ms),
        "heartbeat_interval_ms": int(session_timeout_ms) // 10,
    }
    if protocol == ["consumer"]:  # the broker has the session timeout
        options = {"group_protocol": "consumer"}
    is_over = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=await_end, daemon=True).start()
    with Consumer(
        servers,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        **options,
    ) as consumer:
        consumer.subscribe([topic])
        while not is_over.is_set():
            consumer.poll(timeout_ms=100)


if __name__ == "__main__":
    main()
