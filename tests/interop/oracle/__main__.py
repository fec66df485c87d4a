"""``python -m interop.oracle HOST:PORT``: print the responses of a broker as text.

The broker must run without an initial rebalance delay, and with ``group.max.size=8``.
"""

from __future__ import annotations

import sys

from confluent_kafka.admin import AdminClient, NewTopic

from interop.members import fresh_name
from interop.oracle import table


def main() -> None:
    """Send all requests to the broker at the given address, and print its responses."""
    bootstrap = sys.argv[1]
    topic = fresh_name("oracle")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
    sys.stdout.write(table.as_text(table.run(bootstrap, topic)))


if __name__ == "__main__":
    main()
