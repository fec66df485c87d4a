"""Rule ``consumer-commits``: commits to the group with the consumer protocol are fenced by epochs.

A member commits with its epoch, or with an older one for each partition that it has had since that
epoch (KIP-1251). A commit without an epoch is accepted only if the group has no members. Each
result must fit a state of the group while the request was handled. Rule ``commits`` checks that
acknowledged offsets are stored, and rejected ones are not.
"""

from __future__ import annotations

from partage.lab.checkers.consumer_group_log import LoggedGroup, LoggedPartition
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.history import (
    ConsumerTopicsChanged,
    History,
    ResponseSent,
    RuleViolationError,
)
from partage.lab.names import CONSUMER_GROUP
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse

#: Results that do not depend on the group.
_UNCHECKED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class ConsumerCommitsChecker:
    """Compares the results of OffsetCommit with the epochs of members and partitions."""

    def __init__(
        self, history: History, states: ConsumerGroupStates, settings: GroupSettings
    ) -> None:
        self._states = states
        self._topic_ids: dict[str, set[bytes]] = {}  # all ids that a name had
        history.subscribe(ConsumerTopicsChanged, self._on_topics)
        history.subscribe(ResponseSent, self._on_response)

    def _on_topics(self, entry: ConsumerTopicsChanged) -> None:
        for name, topic_id, _ in entry.topics:
            self._topic_ids.setdefault(name, set()).add(topic_id)

    def _on_response(self, entry: ResponseSent) -> None:
        request, response = entry.request.message, entry.message
        if not isinstance(request, OffsetCommitRequest) or request.group_id != CONSUMER_GROUP:
            return
        assert isinstance(response, OffsetCommitResponse)
        groups = self._states.possible(entry)
        if self._states.has_classic_members and any(group.epoch is None for group in groups):
            return  # rule `generation-fence` checks commits to classic groups
        for topic in response.topics:
            for result in topic.partitions:
                code = ErrorCode(result.error_code)
                places = {
                    (topic_id, result.partition_index)
                    for topic_id in self._topic_ids.get(topic.name, ())
                }
                if code not in _UNCHECKED and not any(
                    code in _results(group, request, places) for group in groups
                ):
                    name = f"{topic.name}-{result.partition_index}"
                    member = groups[-1].members.get(request.member_id)
                    raise RuleViolationError(
                        "consumer-commits", f"{name} of {request} got {code.name} by {member}"
                    )


def _results(
    group: LoggedGroup, request: OffsetCommitRequest, places: set[LoggedPartition]
) -> set[ErrorCode]:
    """Return the results that a commit of a partition can have in a state of the group.

    There are several only if the name of the topic had several ids.
    """
    epoch = request.generation_id_or_member_epoch
    members = group.stored_members()
    if group.epoch is None:  # a commit without an epoch may have created a group without members
        return {ErrorCode.NONE} if epoch < 0 else _WITHOUT_GROUP
    if epoch < 0 and not members:
        return {ErrorCode.NONE}
    member = members.get(request.member_id)
    if member is None:
        return {ErrorCode.UNKNOWN_MEMBER_ID}
    if epoch == member.epoch:
        return {ErrorCode.NONE}
    stale = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    if epoch > member.epoch:
        return {stale}
    since = {**member.assigned, **member.pending}
    results = {
        ErrorCode.NONE if since.get(place, epoch + 1) <= epoch else stale for place in places
    }
    return results or {stale}


_WITHOUT_GROUP = {
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}
