"""Version marks of user data, for version probing (KIP-429).

Members of an assignor with version probing put a mark before their user data. The leader does the
same in its assignments. A coordinator that knows the members' versions selects a leader with the
newest one. With any other coordinator, an older leader sees in the mark that it cannot read the
data, and answers with its own version. The newer members then rejoin with an older version.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

_MARK: Final = b"partage: version "
_VERSIONS: Final = struct.Struct(">hh")


class NoCommonVersionError(Exception):
    """A member and its leader have no version of the assignor in common."""


class VersionedUserData(msgspec.Struct, frozen=True):
    """User data with its version and the oldest version that its writer supports."""

    version: int
    oldest: int
    user_data: bytes


def encode_user_data(versions: Sequence[int], version: int, user_data: bytes = b"") -> bytes:
    """Return user data in ``version`` with the mark of a writer that supports ``versions``."""
    return _MARK + _VERSIONS.pack(version, min(versions)) + user_data


def decode_user_data(user_data: bytes) -> VersionedUserData | None:
    """Decode marked user data; None if it has no mark, as from a writer without version probing."""
    begins = len(_MARK) + _VERSIONS.size
    if not user_data.startswith(_MARK) or len(user_data) < begins:
        return None
    version, oldest = _VERSIONS.unpack_from(user_data, len(_MARK))
    return VersionedUserData(version, oldest, user_data[begins:])


def choose_version(versions: Sequence[int], leader: VersionedUserData) -> int:
    """Return the newest of ``versions`` that the leader reads.

    Raises:
        NoCommonVersionError: The leader reads none of them.
    """
    fitting = [version for version in versions if leader.oldest <= version <= leader.version]
    if not fitting:
        ours = ", ".join(map(str, versions))
        raise NoCommonVersionError(
            f"the leader reads versions {leader.oldest} to {leader.version}, but this member "
            f"supports {ours}; support one of the leader's versions until all members are upgraded"
        )
    return max(fitting)
