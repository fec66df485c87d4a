"""The clients of a scenario, and the parser of its command lines."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from itertools import zip_longest

from partage.coordinator.events import Protocol
from partage.coordinator.replies import JoinReply
from partage.model.errors import ErrorCode

FLAGS = {
    "must-rejoin",
    "old-leader",
    "before-v9",
    "before-v6",
    "simple",
    "loading",
    "only-stable",
    "aborts",
}


class CommandLine:
    """A parsed command line: its verb, names, flags and options."""

    def __init__(self, line: str) -> None:
        self.verb, *rest = shlex.split(line)
        self.flags = FLAGS.intersection(rest)
        self.names = [word for word in rest if "=" not in word and word not in FLAGS]
        self.options = dict(word.split("=", 1) for word in rest if "=" in word)

    @property
    def group_id(self) -> str:
        return self.options.get("group", "g")


@dataclass
class Client:
    """A member of one group, as its client sees it: its options, and the last reply."""

    name: str
    options: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    member_id: str = ""
    generation: int = -1
    members: list[str] = field(default_factory=list)
    ids: int = 0

    def next_member_id(self) -> str:
        """Return the id to use if the coordinator needs a new one."""
        self.ids += 1
        return f"{self.name}-{self.ids}"

    def on_reply(self, reply: JoinReply) -> None:
        """Remember the reply."""
        if reply.error is ErrorCode.NONE:
            self.member_id = reply.member_id
            self.generation = reply.generation
            self.members = [m.member_id for m in reply.members]
        elif reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        elif reply.error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""


def parse_protocols(names: str, metadata: bytes, versions: str) -> tuple[Protocol, ...]:
    """Return the named protocols; the last version applies to all protocols without one."""
    given = [int(version) for version in versions.split(",")]
    return tuple(
        Protocol(name, metadata, version)
        for name, version in zip_longest(names.split(","), given, fillvalue=given[-1])
        if name
    )


def partition(text: str) -> tuple[str, int]:
    """Parse ``t-0`` as partition 0 of topic t."""
    topic, _, index = text.rpartition("-")
    return topic, int(index)
