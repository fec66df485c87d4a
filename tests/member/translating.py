"""What members ask and coordinators answer, from one core's words into the other's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partage.coordinator import events as asked
from partage.coordinator import replies
from partage.member import events, outcome
from partage.member.member import Identity

if TYPE_CHECKING:
    from .node import Node

GROUP = "g"


class SendCommit(outcome.Action, frozen=True, gc=False, kw_only=True):
    """OffsetCommit, which is the shell's to send."""

    identity: Identity
    partitions: tuple[events.Partition, ...]


def request(node: Node, action: outcome.Action, ticket: asked.Ticket) -> asked.Request:
    now_ms = node.world.now_ms
    match action:
        case outcome.SendJoin():
            return asked.Join(
                at_ms=now_ms,
                reply_to=ticket,
                group_id=GROUP,
                member_id=action.member_id,
                fresh_member_id=f"{node.name}-{next(node.world.counter)}",
                instance_id=action.instance_id,
                client_id=node.name,
                client_host="/",
                session_timeout_ms=action.session_timeout_ms,
                rebalance_timeout_ms=action.rebalance_timeout_ms,
                protocol_type=action.protocol_type,
                protocols=tuple(asked.Protocol(p.name, p.metadata) for p in action.protocols),
                reason=action.reason,
            )
        case outcome.SendSync():
            return asked.Sync(
                at_ms=now_ms,
                reply_to=ticket,
                group_id=GROUP,
                generation=action.generation,
                member_id=action.member_id,
                instance_id=action.instance_id,
                protocol_type=action.protocol_type,
                protocol=action.protocol,
                assignments=action.assignments,
                assignment_error=action.assignment_error,
            )
        case outcome.SendHeartbeat():
            return asked.Heartbeat(
                at_ms=now_ms,
                reply_to=ticket,
                group_id=GROUP,
                generation=action.generation,
                member_id=action.member_id,
                instance_id=action.instance_id,
            )
        case outcome.SendLeave():
            leaver = asked.Leaver(
                member_id=action.member_id,
                instance_id=action.instance_id,
                reason=action.reason,
            )
            return asked.Leave(at_ms=now_ms, reply_to=ticket, group_id=GROUP, leavers=(leaver,))
        case SendCommit(identity=identity, partitions=partitions):
            return asked.Commit(
                at_ms=now_ms,
                reply_to=ticket,
                group_id=GROUP,
                generation=identity.generation,
                member_id=identity.member_id,
                instance_id=identity.instance_id,
                offsets=tuple(
                    asked.OffsetToCommit(topic=topic, partition=number, offset=now_ms)
                    for topic, number in partitions
                ),
            )
    raise AssertionError(action)


def answer(action: outcome.Action, reply: replies.Reply, at_ms: int) -> events.Event:
    match action, reply:
        case outcome.SendJoin(serial=serial), replies.JoinReply():
            members = tuple(
                events.GroupMember(
                    member_id=m.member_id, instance_id=m.instance_id, metadata=m.metadata
                )
                for m in reply.members
            )
            heard: events.Event = events.JoinAnswered(
                at_ms=at_ms,
                serial=serial,
                error=reply.error,
                member_id=reply.member_id,
                generation=reply.generation,
                protocol_type=reply.protocol_type,
                protocol=reply.protocol,
                leader=reply.leader,
                skip_assignment=reply.skip_assignment,
                members=members,
            )
        case outcome.SendSync(serial=serial), replies.SyncReply():
            heard = events.SyncAnswered(
                at_ms=at_ms,
                serial=serial,
                error=reply.error,
                protocol_type=reply.protocol_type,
                protocol=reply.protocol,
                assignment=reply.assignment,
                assignment_error=reply.assignment_error,
            )
        case outcome.SendHeartbeat(serial=serial), replies.HeartbeatReply(error=error):
            heard = events.HeartbeatAnswered(at_ms=at_ms, serial=serial, error=error)
        case outcome.SendLeave(serial=serial), replies.LeaveReply():
            error = reply.error or reply.errors[0]
            heard = events.LeaveAnswered(at_ms=at_ms, serial=serial, error=error)
        case SendCommit(identity=identity), replies.CommitReply(errors=errors):
            heard = events.CommitAnswered(
                at_ms=at_ms,
                generation=identity.generation,
                member_id=identity.member_id,
                error=errors[0],
            )
        case _:
            raise AssertionError((action, reply))
    return heard
