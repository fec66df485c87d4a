"""The computations of a member from the metadata of all members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from partage.assignors.base import Assignor
from partage.assignors.group_view import Member
from partage.proposals.assignment import Shares, assign_partitions
from partage.proposals.multi_assignor.messages import (
    JoinGroupMember,
    JoinGroupResponse,
    MemberMetadataList,
)
from partage.proposals.multi_assignor.metadata import (
    HashedMetadata,
    SubscriptionMetadata,
    decode_metadata,
    decompress,
)
from partage.proposals.topic_pattern import TopicPattern
from partage.wire import codec

#: The metadata of all members of a group, as much as a coordinator keeps.
GROUP_DECOMPRESSED_BYTES_MAX: Final = 256 << 20


class MetadataCompression(StrEnum):
    """The part of the metadata that is compressed with zlib."""

    NONE = "none"
    MEMBER = "member"  # each member compresses its own metadata
    GROUP = "group"  # the coordinator compresses all members of a response


class MetadataView(msgspec.Struct, frozen=True):
    """A view of topics that at least one member has: its subscription and its hash of them."""

    topics: frozenset[str]
    is_pattern: bool
    metadata_hash: bytes


class GroupSubscriptions(msgspec.Struct, frozen=True):
    """The subscriptions of all members, and the distinct views of topics among them."""

    members: tuple[Member, ...]
    views: frozenset[MetadataView]


class GroupComputation:
    """Decodes the metadata of a response and assigns partitions.

    A simulation has a subclass that computes each distinct input once, although every simulated
    member computes it.
    """

    def subscriptions(
        self, response: JoinGroupResponse, topics: Mapping[str, int], *, is_compressed: bool
    ) -> GroupSubscriptions:
        """Return the subscriptions of all members.

        Args:
            response: The response of the coordinator.
            topics: The topics that this member knows; patterns are matched with them.
            is_compressed: True if each member compressed its metadata.

        Raises:
            MalformedError: The metadata of a member is malformed.
            ValueError: The pattern of a member is not supported.
            zlib.error: The metadata of a member is not compressed.
        """
        members: list[Member] = []
        views: set[MetadataView] = set()
        patterns: dict[str, TopicPattern] = {}
        for each in group_members(response):
            metadata: Any = decode_metadata(
                SubscriptionMetadata, each.metadata, is_compressed=is_compressed
            )
            text, names = metadata.topic_pattern, metadata.topics
            if text is not None:
                pattern = patterns.get(text)
                if pattern is None:
                    pattern = patterns[text] = TopicPattern(text)
                names = [name for name in topics if pattern.matches(name)]
            views.add(MetadataView(frozenset(names), text is not None, metadata.metadata_hash))
            members.append(
                Member(
                    member_id=each.member_id,
                    topics=tuple(sorted(names)),
                    user_data=metadata.user_data,
                )
            )
        return GroupSubscriptions(tuple(members), frozenset(views))

    def hashes(
        self, response: JoinGroupResponse, *, is_compressed: bool
    ) -> dict[str, HashedMetadata]:
        """Return the hashes of all members, by member id."""
        decoded: dict[str, Any] = {
            each.member_id: decode_metadata(
                HashedMetadata, each.metadata, is_compressed=is_compressed
            )
            for each in group_members(response)
        }
        return decoded

    def assign(
        self, assignor: Assignor, members: tuple[Member, ...], topics: Mapping[str, int]
    ) -> Shares:
        """Return the share of each member; see `assign_partitions`."""
        return assign_partitions(assignor, members, topics)


def group_members(response: JoinGroupResponse) -> list[JoinGroupMember]:
    """Return the members of a response, after decompression where the group is compressed."""
    if not response.compressed_members:
        return response.members
    data = decompress(response.compressed_members, GROUP_DECOMPRESSED_BYTES_MAX)
    decoded: MemberMetadataList
    decoded, _ = codec.decoder(MemberMetadataList, 0, False)(data, 0)
    return decoded.members


def active_subscription(counts: Counter[bytes]) -> bytes:
    """Return the subscription hash of the active sub-group: the largest, then the smallest hash.

    Args:
        counts: The number of members with each subscription hash.
    """
    return min(counts, key=lambda each: (-counts[each], each))
