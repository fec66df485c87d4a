"""The shell of members: connections, timers, reading and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.sockets.member_shell import SocketMemberShell
from polled_conditions import eventually_async
from proposals.sockets.toy_design import Stage, Words, WordsCodec, on_stage, partitions


class ToyReader:
    """A reader that records its calls; each partition is at offset 7."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def start(self, offsets: dict[TopicPartition, int]) -> None:
        self.calls.append(("start", offsets))

    def stop(self, partitions: frozenset[TopicPartition] | None) -> None:
        self.calls.append(("stop", partitions))

    def resume(self, partitions: frozenset[TopicPartition]) -> None:
        self.calls.append(("resume", partitions))

    def positions(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 7)


class ToyMember:
    """A member whose reactions to kinds of events are given."""

    owned: frozenset[TopicPartition] = frozenset()
    is_stable = True

    def __init__(
        self, reactions: dict[type[machine.Event], list[machine.Action]], timer_ms: int | None
    ) -> None:
        self.events: list[machine.Event] = []
        self._reactions = reactions
        self._timer_ms = timer_ms

    def handle(self, event: machine.Event) -> machine.MemberOutcome[str]:
        self.events.append(event)
        if isinstance(event, machine.PartitionCountsChanged):
            raise AssertionError("a bug")
        outcome: machine.MemberOutcome[str] = machine.MemberOutcome(event.at_ms)
        outcome.actions.extend(self._reactions.get(type(event), []))
        if isinstance(event, machine.Started) and self._timer_ms is not None:
            outcome.arm_timer("timer", self._timer_ms)
        return outcome


class ToyShell(SocketMemberShell):
    """Runs a `ToyMember`, closed after a response "bye"."""

    def __init__(
        self,
        stage: Stage,
        reactions: dict[type[machine.Event], list[machine.Action]],
        timer_ms: int | None = None,
    ) -> None:
        self.member = ToyMember(reactions, timer_ms)
        self.toy_reader = ToyReader()
        super().__init__(self.member, WordsCodec, self.toy_reader)
        self.address = stage.address

    @property
    def is_closed(self) -> bool:
        last = self.member.events[-1] if self.member.events else None
        return isinstance(last, machine.ResponseReceived) and last.message == Words(words=["bye"])

    async def find_coordinator(self, action: machine.Connect) -> tuple[str, int]:
        return self.address

    async def fetch_metadata(self, *, is_from_coordinator: bool) -> dict[str, int]:
        return {"t": 2 if is_from_coordinator else 1}

    def kinds(self) -> list[type[machine.Event]]:
        return [type(event) for event in self.member.events]


def run(
    play: Callable[[ToyShell], Awaitable[None]],
    reactions: dict[type[machine.Event], list[machine.Action]],
    timer_ms: int | None = None,
) -> None:
    """Run a test with a member that is started against a served coordinator."""

    async def on_it(stage: Stage) -> None:
        shell = ToyShell(stage, reactions, timer_ms)
        try:
            shell.start()
            await play(shell)
        finally:
            shell.stop()

    on_stage(on_it)


BYE = machine.Send(message=Words(words=["bye"]))


def test_member_connects_sends_and_closes() -> None:
    async def play(shell: ToyShell) -> None:
        await shell.wait_closed()
        assert shell.kinds() == [machine.Started, machine.Connected, machine.ResponseReceived]

    run(play, {machine.Started: [machine.Connect()], machine.Connected: [BYE]})


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b"])
def test_unreachable_coordinator_is_reported_to_the_machine(host: str) -> None:
    async def play(shell: ToyShell) -> None:
        shell.address = (host, 1)
        await shell.wait_closed()
        assert shell.kinds() == [machine.Started, machine.Disconnected]

    error = machine.ReportError(reason="no coordinator")
    run(play, {machine.Started: [machine.Connect()], machine.Disconnected: [error]})


def test_outage_is_logged_once_for_the_user(caplog: pytest.LogCaptureFixture) -> None:
    async def play(shell: ToyShell) -> None:
        shell.address = ("127.0.0.1", 1)
        await eventually_async(lambda: shell.kinds().count(machine.Disconnected) >= 3)
        shell.stop()

    caplog.set_level("INFO")
    again = machine.Connect()
    run(play, {machine.Started: [machine.Connect()], machine.Disconnected: [again]})
    logged = [each for each in caplog.records if "no connection to the coordinator" in each.message]
    assert [each.levelname for each in logged][:3] == ["WARNING", "INFO", "INFO"]


def test_lost_connection_is_reported_once() -> None:
    async def play(shell: ToyShell) -> None:
        await shell.wait_closed()
        assert shell.kinds().count(machine.Disconnected) == 1
        assert shell.error == "lost"

    run(
        play,
        {
            machine.Started: [machine.Connect()],
            machine.Connected: [machine.Send(message=Words(words=["close"]))],
            machine.Disconnected: [machine.ReportError(reason="lost")],
        },
    )


def test_disconnect_stops_a_connection_that_opens() -> None:
    async def play(shell: ToyShell) -> None:
        await shell.wait_closed()
        assert shell.kinds() == [machine.Started, machine.TimerFired]

    run(
        play,
        {
            machine.Started: [machine.Connect(), machine.Disconnect()],
            machine.TimerFired: [machine.ReportError(reason="over")],
        },
        timer_ms=20,
    )


def test_second_connect_replaces_the_first() -> None:
    async def play(shell: ToyShell) -> None:
        await shell.wait_closed()
        assert shell.kinds().count(machine.Connected) == 1

    run(
        play,
        {machine.Started: [machine.Connect(), machine.Connect()], machine.Connected: [BYE]},
    )


def test_reading_follows_the_actions_in_order() -> None:
    async def play(shell: ToyShell) -> None:
        await shell.wait_closed()
        assert shell.toy_reader.calls == [
            ("start", {TopicPartition("t", 0): 3}),
            ("stop", None),
            ("resume", partitions(0)),
        ]
        taken = shell.member.events[1]
        assert isinstance(taken, machine.PositionsTaken)
        assert taken.positions == {TopicPartition("t", 0): 7}

    run(
        play,
        {
            machine.Started: [
                machine.StartReading(offsets={TopicPartition("t", 0): 3}),
                machine.StopReading(),
                machine.CommitDue(partitions=partitions(0)),
                machine.ResumeReading(partitions=partitions(0)),
            ],
            machine.PositionsTaken: [machine.ReportError(reason="over")],
        },
    )


def test_fetched_metadata_arrives() -> None:
    async def play(shell: ToyShell) -> None:
        await shell.wait_closed()
        assert shell.member.events[-1] == machine.MetadataFetched(
            at_ms=shell.member.events[-1].at_ms, topics={"t": 2}
        )

    fetch = machine.FetchMetadata(is_from_coordinator=True)
    over = machine.ReportError(reason="over")
    run(play, {machine.Started: [fetch], machine.MetadataFetched: [over]})


def test_bug_of_the_machine_reaches_the_user() -> None:
    async def play(shell: ToyShell) -> None:
        shell.handle(machine.PartitionCountsChanged(at_ms=0, topics={}))
        with pytest.raises(AssertionError, match="a bug"):
            await shell.wait_closed()
        shell.leave()
        assert machine.LeaveRequested not in shell.kinds()

    run(play, {})


def test_damaged_response_closes_the_connection() -> None:
    async def play(stage: Stage) -> None:
        stage.address = await _serve_damage()
        shell = ToyShell(
            stage,
            {
                machine.Started: [machine.Connect()],
                machine.Disconnected: [machine.ReportError(reason="lost")],
            },
        )
        shell.start()
        await asyncio.wait_for(shell.wait_closed(), 30)
        shell.stop()
        assert shell.kinds() == [machine.Started, machine.Connected, machine.Disconnected]
        server.close()

    server: asyncio.Server

    async def _serve_damage() -> tuple[str, int]:
        nonlocal server

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\x00\x00\x00\x02no")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        return host, port

    on_stage(play)


def test_shell_without_metadata_refuses_to_fetch_it() -> None:
    async def play(stage: Stage) -> None:
        shell = ToyShell(stage, {})
        with pytest.raises(AssertionError, match="fetches no metadata"):
            await SocketMemberShell.fetch_metadata(shell, is_from_coordinator=False)
        with pytest.raises(AssertionError, match="unexpected action"):
            shell.perform(machine.Disconnect())

    on_stage(play)
