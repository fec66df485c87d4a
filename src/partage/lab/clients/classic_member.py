"""A process with the product's member of the classic protocol in the group of `HeartbeatMember`.

The group can have members of both protocols, and can change its type. The topics of its members
exist only in the catalogue, so the user gets numbered records without a Fetch.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from partage.bridge.consumer_protocol import ConsumerProtocol
from partage.lab import history
from partage.lab.clients.consumer import ConsumerProcess
from partage.lab.clients.poll_loop import PollLoop
from partage.lab.context import WorldContext
from partage.lab.names import CONSUMER_GROUP
from partage.member import events, outcome
from partage.model.errors import ErrorCode

_REFUSED_BACK_OFF_MS: Final = 1_000
#: The errors after which the user joins again: the group may change its type, or lose a member.
_REFUSALS: Final = frozenset(
    {ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
)


class CountingPollLoop(PollLoop):
    """A poll loop that delivers one record of each partition with each poll."""

    def _request_records(self) -> None:
        process = self._process
        self._open_connection(process.coordinator_id)  # for commits
        for partition in sorted(process.core.deliverable & self._positions.keys()):
            offset = self._positions[partition] or 0
            process.world.append_history(
                history.RecordsDelivered(
                    at_ms=process.world.now_ms,
                    process=process.name,
                    group_id=process.group_id,
                    partition=partition,
                    records=((offset, b"%d" % offset),),
                )
            )
            self._positions[partition] = offset + 1


class ClassicMember(ConsumerProcess):
    """A process with one member that speaks the classic protocol."""

    poll_loop_class: ClassVar[type[PollLoop]] = CountingPollLoop

    def __init__(
        self,
        world: WorldContext,
        name: str,
        topics: frozenset[str],
        protocol: ConsumerProtocol,
        instance_id: str | None = None,
    ) -> None:
        super().__init__(world, name, CONSUMER_GROUP, topics, protocol, instance_id)

    @property
    def partition_counts(self) -> dict[str, int]:
        """The partition counts of the topics that the process can read."""
        images = self.world.consumer_topics.images
        return {name: image.partition_count for name, image in images.items()}

    def _perform_action(self, action: outcome.Action) -> None:
        super()._perform_action(action)
        match action:
            case outcome.LeftGroup():
                self.call_later(0, self._end)
            case outcome.ReportFatalError(error=error) if error in _REFUSALS:
                self.call_later(_REFUSED_BACK_OFF_MS, self._join_again)
            case outcome.ReportFatalError(error=ErrorCode.FENCED_INSTANCE_ID):
                self.call_later(0, self._end)
            case outcome.ReportFatalError(error=error, reason=reason):
                raise history.RuleViolationError(
                    "consumer-fence", f"{self.name} got {error.name}: {reason}"
                )

    def _end(self) -> None:
        if self.is_alive:
            self.crash(silently=False)

    def _join_again(self) -> None:
        """Join again; until the group accepts the member, its last failure counts."""
        if self.is_subscribed and self.failure is not None:
            self.handle(events.SubscriptionChanged(at_ms=self.world.now_ms, topics=self.topics))

    def handle(self, event: events.Event) -> None:
        """Let the member handle an event, and perform the resulting actions."""
        super().handle(event)
        if self.core.membership.is_in_generation:
            self.failure = None

    def leave(self) -> None:
        """Leave the group and end the process."""
        super().leave()
        if not self.is_member:  # it had failed, or had left
            self._end()

    def restart_arguments(self, name: str) -> dict[str, Any]:
        """Return the arguments of a new process that replaces this one."""
        arguments = super().restart_arguments(name)
        del arguments["group_id"]
        return arguments
