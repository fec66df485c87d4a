"""Scripts of the differences of consumer groups, with the responses of both brokers.

The comment at the top of each file is the row of `CONSUMER_DIFFERENCES` that it shows. A response
that differs is there twice, as ``kafka:`` and as ``partage:``.
"""

from __future__ import annotations

from pathlib import Path

SCRIPTS = sorted((Path(__file__).parent / "differences").glob("*.txt"))

#: Rows that no response of a broker with Kafka's assignors shows, with the reason.
WITHOUT_SCRIPT = {
    "The assignor runs outside the state machine. Only the heartbeat that caused the computation "
    "waits for it.": "needs a slow assignor",
    "If an assignor fails, the previous target stays in force, and the heartbeat succeeds. The "
    "error and the name of the assignor become a group event. The next heartbeat after 1 s "
    "computes again.": "needs an assignor that fails",
    "The hash of the subscribed topics differs from Kafka's.": "is in no response",
}

#: The settings that a script needs, by the name of its file.
OVERRIDES: dict[str, dict[str, str]] = {
    "tie-of-assignors": {"group.consumer.assignors": "range,uniform"},
    "upgrade-of-first-generation": {"group.initial.rebalance.delay.ms": "600000"},
}

_APACHE, _PARTAGE = "    kafka: ", "    partage: "


def title(text: str) -> str:
    """Return the row of a script."""
    first, _, _ = text.partition("\n\n")
    return " ".join(line.removeprefix("# ") for line in first.splitlines())


def responses(text: str, kind: str) -> str:
    """Return a script with the responses of one broker, ``apache`` or ``partage``."""
    mine, other = (_APACHE, _PARTAGE) if kind == "apache" else (_PARTAGE, _APACHE)
    lines = [line for line in text.split("\n") if not line.startswith(other)]
    return "\n".join(line.replace(mine, "    ", 1) for line in lines)
