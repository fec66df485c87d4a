"""Runs a small world, and records its messages as the steps of a diagram."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Any, Final

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.proposals.designs.catalog import DesignFactory, find_design
from partage.proposals.diagrams.labels import (
    PERIODIC,
    has_news,
    is_response,
    label_action,
    label_message,
    label_reading,
    label_records,
)
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import Action
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.observer import COORDINATOR, WorldObserver
from partage.proposals.simulation.world import DesignWorld, WorldOptions
from partage.wire.types import Message

_TOPIC: Final = "t"
_PARTITIONS: Final = 4
_STABLE_MS: Final = 120_000


class DiagramScenario(StrEnum):
    """The runs of which a diagram is drawn."""

    FORM = "form"
    JOIN = "join"
    PARTITIONS = "partitions"


#: A description of each run, for the documentation.
SCENARIO_DESCRIPTIONS: Final = {
    DiagramScenario.FORM: "members A and B start together",
    DiagramScenario.JOIN: "member B joins the group of member A",
    DiagramScenario.PARTITIONS: "the topic gets two more partitions",
}


class StepKind(StrEnum):
    """The kinds of steps."""

    REQUEST = "request"
    RESPONSE = "response"
    CLOSE = "close"
    NOTE = "note"


class DiagramStep(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a diagram.

    Attributes:
        at_ms: The time since the first step.
        kind: The kind of the step. A note has no receiver.
        sender: A member, or the coordinator.
        receiver: The other process, or "".
        label: The content in a few words.
    """

    at_ms: int
    kind: StepKind
    sender: str
    receiver: str = ""
    label: str


class MessageDiagram(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one run. ``lanes`` are the processes, from left to right."""

    design: str
    scenario: DiagramScenario
    seed: int
    lanes: tuple[str, ...]
    steps: tuple[DiagramStep, ...]


class DiagramRecorder(WorldObserver):
    """Records the steps of a world.

    Of the periodic messages without news, it records the first request and its response.
    """

    def __init__(self) -> None:
        self._numbered: list[tuple[int, DiagramStep]] = []
        self._count = 0
        self.now_ms: Callable[[], int] = lambda: 0
        self.is_recording = False
        #: True if the first periodic request and its response were recorded.
        self.has_periodic = False
        # Heartbeats without a response, by member.
        self._pending: dict[str, tuple[int, DiagramStep]] = {}
        self._recorded: set[str] = set()  # members whose recorded heartbeat has no response
        self._reading: dict[str, frozenset[TopicPartition]] = {}

    @property
    def steps(self) -> list[DiagramStep]:
        """The steps in their order. A request is recorded only when its response is known."""
        return [step for _, step in sorted(self._numbered, key=lambda each: each[0])]

    def on_message(self, sender: str, receiver: str, message: Message) -> None:
        member = receiver if sender == COORDINATOR else sender
        label = label_message(message)
        kind = StepKind.RESPONSE if is_response(message) else StepKind.REQUEST
        step = self._step(kind, sender, receiver, label)
        if isinstance(message, PERIODIC):
            self._add_periodic(member, message, step)
        else:
            self._add(step)

    def _add_periodic(self, member: str, message: Message, step: DiagramStep) -> None:
        """Record a periodic request with its response if it is the first, or if one has news."""
        if not self.is_recording:
            return
        if not is_response(message):
            # A response belongs to the last request: the responses to earlier ones were lost.
            self._recorded.discard(member)
            self._pending.pop(member, None)
            if has_news(message):
                self._add(step)
                self._recorded.add(member)
            else:
                self._pending[member] = self._number(step)
        elif member in self._recorded:
            self._recorded.remove(member)
            self._add(step)
        elif (request := self._pending.pop(member, None)) is not None:
            is_news = has_news(message)
            if is_news or not self.has_periodic:
                self.has_periodic = self.has_periodic or not is_news
                self._numbered += (request, self._number(step))

    def on_close(self, sender: str, receiver: str) -> None:
        self._add(self._step(StepKind.CLOSE, sender, receiver, "closes the connection"))

    def on_records(self, records: Sequence[Any]) -> None:
        self._note(COORDINATOR, label_records(records))

    def on_actions(
        self, member: str, actions: Sequence[Action], reading: AbstractSet[TopicPartition]
    ) -> None:
        for action in actions:
            self._note(member, label_action(action))
        before, after = self._reading.get(member, frozenset()), frozenset(reading)
        if before != after:
            self._reading[member] = after
            self._note(member, label_reading(after))

    def _note(self, process: str, label: str) -> None:
        if label:
            self._add(self._step(StepKind.NOTE, process, "", label))

    def _step(self, kind: StepKind, sender: str, receiver: str, label: str) -> DiagramStep:
        return DiagramStep(
            at_ms=self.now_ms(), kind=kind, sender=sender, receiver=receiver, label=label
        )

    def _add(self, step: DiagramStep) -> None:
        if self.is_recording:
            self._numbered.append(self._number(step))

    def _number(self, step: DiagramStep) -> tuple[int, DiagramStep]:
        self._count += 1
        return self._count, step


def record_diagram(
    design: str | DesignFactory, scenario: DiagramScenario, seed: int = 1
) -> MessageDiagram:
    """Run a world of two members and one topic, and return its diagram.

    Args:
        design: The name of a design or variant, or its factory.
        scenario: The run.
        seed: The seed of all random draws.

    Raises:
        ValueError: There is no design of this name.
    """
    factory = find_design(design) if isinstance(design, str) else design
    # Commits at fixed intervals would hide those that belong to a rebalance.
    settings = DesignMemberSettings(group_id="g", commit_interval_ms=3_600_000)
    made = factory(CoordinatorSettings(), settings)
    recorder = DiagramRecorder()
    options = WorldOptions(topics={_TOPIC: _PARTITIONS}, metadata_refresh_ms=20_000)
    world = DesignWorld(made, options, seed, observer=recorder)
    recorder.now_ms = lambda: world.clock.now_ms
    begin = {
        DiagramScenario.FORM: ("A", "B"),
        DiagramScenario.JOIN: ("B",),
        DiagramScenario.PARTITIONS: (),
    }[scenario]
    for name in ("A", "B"):
        if name not in begin:
            _start(world, name)
    if scenario is not DiagramScenario.FORM:
        assert world.run_until_settled(_STABLE_MS), f"{made.name} does not form a group"
    recorder.is_recording = True
    for name in begin:
        _start(world, name)
    if scenario is DiagramScenario.PARTITIONS:
        world.add_partitions(_TOPIC, 2)
    _run_to_end(world, recorder, needs_periodic=scenario is DiagramScenario.FORM)
    steps = recorder.steps
    return MessageDiagram(
        design=made.name,
        scenario=scenario,
        seed=seed,
        lanes=("A", COORDINATOR, "B"),
        steps=tuple(
            msgspec.structs.replace(step, at_ms=step.at_ms - steps[0].at_ms) for step in steps
        ),
    )


def _start(world: DesignWorld, name: str) -> None:
    world.start_member(MemberTemplate(name=name, topics=frozenset({_TOPIC})))


def _run_to_end(world: DesignWorld, recorder: DiagramRecorder, *, needs_periodic: bool) -> None:
    """Run until the group is stable again, and until a periodic message is answered if needed."""
    recorder.has_periodic = not needs_periodic
    assert world.run_until_settled(_STABLE_MS), f"{world.design.name} does not become stable"
    if not recorder.has_periodic:
        world.run(_STABLE_MS)
    assert recorder.has_periodic, f"{world.design.name} sends no periodic messages"
