"""The labels of messages, records and actions in a diagram."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from partage.bridge.member_requests import to_error_code
from partage.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    MemberAssignmentRecord,
    MemberTargetRecord,
    TargetAssignmentRecord,
)
from partage.coordinator.records import GroupRecord
from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side import messages as push
from partage.proposals.broker_side.events import SendToBroker
from partage.proposals.broker_side.records import OwnerRecord
from partage.proposals.join_group.records import GenerationRecord
from partage.proposals.machine import Action, FetchMetadata
from partage.proposals.multi_assignor import messages as multi
from partage.proposals.product.topic_ids import topic_name
from partage.proposals.single_assignor import messages as single
from partage.proposals.single_assignor.member import ComputeShares
from partage.proposals.state_table import error_code_of
from partage.proposals.two_phase.resync import RESYNC_NEEDED
from partage.wire.apis import join_group, sync_group
from partage.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.types import Message

#: Messages that members or coordinators send all the time.
PERIODIC: Final = (
    HeartbeatRequest,
    HeartbeatResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    push.PingRequest,
    push.PingResponse,
)
_CONSUMER_HEARTBEATS: Final = (ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)


def is_response(message: Message) -> bool:
    """True if a message answers a request."""
    return type(message).__name__.endswith("Response")


def error_of(message: Message) -> str:
    """Return the name of the error in a response; "" if there is none."""
    code = error_code_of(message)
    if not code or not is_response(message):
        return ""
    if type(message).__module__ == push.__name__:
        return push.PushError(code).name
    return "RESYNC_NEEDED" if code == RESYNC_NEEDED else to_error_code(code).name


def has_news(message: Message) -> bool:
    """True if a periodic message has an error, or changes a member or its assignment."""
    if isinstance(message, _CONSUMER_HEARTBEATS):
        return bool(error_of(message) or _detail(message))
    return bool(error_of(message))


def label_message(message: Message) -> str:
    """Return the name of a message's API, with its error or its content in a few words."""
    name = type(message).__name__.removesuffix("Request").removesuffix("Response")
    detail = error_of(message) or _detail(message)
    return f"{name}: {detail}" if detail else name


def _detail(message: Any) -> str:
    match message:
        case push.PingResponse() | push.StopFetcherResponse():
            return "offsets" if message.offset_info else ""
        case push.StartFetcherRequest(ownership_info=threads):
            parts = [part for thread in threads for part in thread.assigned_parts]
            return _share(
                TopicPartition(part.topic, int(part.partition.rpartition("-")[2])) for part in parts
            )
        case multi.JoinGroupResponse() | single.JoinGroupResponse(synchronize=single.Synchronize()):
            return "all metadata"
        case multi.JoinGroupRequest() | single.JoinGroupRequest(join=single.JoinPhase()):
            return "own metadata"
        case single.JoinGroupRequest(synchronized=single.Synchronized(error_code=0)):
            return "all shares"
        case single.JoinGroupResponse(joined=single.Joined()):
            return "own share"
        case join_group.JoinGroupRequest():
            return "own metadata"
        case join_group.JoinGroupResponse(leader=leader, member_id=member_id):
            return "leader, all metadata" if leader == member_id else "follower"
        case sync_group.SyncGroupRequest(assignments=assignments):
            return "all shares" if assignments else ""
        case sync_group.SyncGroupResponse():
            return "own share"
        case ConsumerGroupHeartbeatRequest(member_epoch=0):
            return "joins"
        case ConsumerGroupHeartbeatRequest(member_epoch=epoch) if epoch < 0:
            return "leaves"
        case ConsumerGroupHeartbeatRequest(topic_partitions=owned) if owned is not None:
            return f"owns {_share(_of_topic_ids(owned))}"
        case ConsumerGroupHeartbeatResponse(assignment=assignment) if assignment is not None:
            return f"gets {_share(_of_topic_ids(assignment.topic_partitions))}"
    return ""


def _of_topic_ids(topics: Iterable[ConsumerGroupTopicPartitions]) -> Iterable[TopicPartition]:
    for topic in topics:
        for number in topic.partitions:
            yield TopicPartition(topic_name(topic.topic_id), number)


def _share(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(f"{topic}-{number}" for topic, number in sorted(partitions)) or "nothing"


def label_reading(partitions: Iterable[TopicPartition]) -> str:
    """Return the note of a member that reads other partitions than before."""
    share = _share(partitions)
    return "stops reading" if share == "nothing" else f"reads {share}"


def label_records(records: Sequence[Any]) -> str:
    """Return the note of a coordinator that stores records."""
    notes: dict[str, None] = {}
    for record in records:
        match record:
            case OwnerRecord():
                notes["owners"] = None
            case GenerationRecord(generation=generation):
                notes[f"generation {generation}"] = None
            case GroupRecord(generation=generation, awaiting_sync=True):
                notes[f"generation {generation}"] = None
            case GroupRecord():
                notes["shares"] = None
            case ConsumerGroupRecord(epoch=epoch):
                notes[f"epoch {epoch}"] = None
            case TargetAssignmentRecord():
                notes["target"] = None
            case MemberAssignmentRecord():
                notes["assignment"] = None
            case ConsumerMemberRecord() | MemberTargetRecord():
                pass  # stored together with one of the others
            case _:
                notes["offsets"] = None
    return f"stores {', '.join(notes)}" if notes else ""


def label_action(action: Action) -> str:
    """Return the note of a member's action; "" if a diagram does not show the action."""
    match action:
        case FetchMetadata(is_from_coordinator=True):
            return "fetches metadata from the coordinator"
        case FetchMetadata():
            return "fetches metadata"
        case ComputeShares():
            return "computes all shares"
        case SendToBroker():
            return "asks a broker for the coordinator"
    return ""
