"""Which version of an assignor wrote user data, and which ones are read (version probing, KIP-429).

Members of an assignor that probes put a mark before their user data, and so does their leader in
what it assigns. A coordinator that knows which versions are spoken has the newest lead; with any
other an older leader finds in the mark what it cannot read, says so in its own, and the newer
members join again with an older version.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

_MARK: Final = b"partage: version "
_VERSIONS: Final = struct.Struct(">hh")


class NoVersionInCommon(Exception):  # noqa: N818 - as the name says
    """A member and its leader speak no version of their assignor that both know."""


class Marked(msgspec.Struct, frozen=True):
    """User data, the version that it is written in, and the oldest that its writer speaks."""

    version: int
    oldest: int
    user_data: bytes


def marked(versions: Sequence[int], version: int, user_data: bytes = b"") -> bytes:
    """User data of ``version``, of who speaks ``versions``."""
    return _MARK + _VERSIONS.pack(version, min(versions)) + user_data


def read(user_data: bytes) -> Marked | None:
    """What is marked; None where nothing is, as in what was written before anybody probed."""
    begins = len(_MARK) + _VERSIONS.size
    if not user_data.startswith(_MARK) or len(user_data) < begins:
        return None
    version, oldest = _VERSIONS.unpack_from(user_data, len(_MARK))
    return Marked(version, oldest, user_data[begins:])


def spoken(versions: Sequence[int], leader: Marked) -> int:
    """The newest of ``versions`` that the leader reads.

    Raises:
        NoVersionInCommon: there is none.
    """
    fitting = [version for version in versions if leader.oldest <= version <= leader.version]
    if not fitting:
        ours = ", ".join(map(str, versions))
        raise NoVersionInCommon(
            f"the leader reads versions {leader.oldest} to {leader.version}, this member speaks "
            f"{ours}; have it speak one of the leader's too until all members are upgraded"
        )
    return max(fitting)
