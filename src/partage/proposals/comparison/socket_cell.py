"""One cell of a comparison over real sockets and in real time.

The coordinator and all members run in one event loop, and exchange frames over connections of this
machine. As in the simulator, members read at a constant rate without a broker, and get the topics
from the cell. So the figures are those of a simulated cell.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.comparison.cell import CellResult, PhaseResult, PhaseTraffic, Workload
from partage.proposals.comparison.grid import SOCKET_DEFAULTS, SOCKET_PHASES, expand_grid
from partage.proposals.consumer_protocol.apis import APIS as CONSUMER_PROTOCOL_APIS
from partage.proposals.designs.broker_side import BrokerSide
from partage.proposals.designs.catalog import find_design
from partage.proposals.designs.consumer_protocol import ConsumerProtocol848
from partage.proposals.designs.multi_assignor import MultiAssignor
from partage.proposals.designs.single_assignor import SingleAssignor
from partage.proposals.designs.two_phase import TwoPhaseCooperative, TwoPhaseEager
from partage.proposals.join_group.frames import ProtocolVersions
from partage.proposals.machine import CoordinatorMachine, CoordinatorOutcome, Event
from partage.proposals.multi_assignor.messages import JOIN_GROUP as MULTI_JOIN_GROUP
from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.simulation.message_sizes import SHARED_APIS
from partage.proposals.simulation.readers import Readers
from partage.proposals.simulation.traffic import Traffic
from partage.proposals.single_assignor.messages import JOIN_GROUP as SINGLE_JOIN_GROUP
from partage.proposals.sockets.broker_side.codecs import BrokerCodec, ConsumerCodec
from partage.proposals.sockets.codec import Codec
from partage.proposals.sockets.coordinator_server import CoordinatorServer
from partage.proposals.sockets.join_group.codecs import CoordinatorCodec, MemberCodec
from partage.proposals.sockets.member_shell import SocketMemberShell
from partage.proposals.two_phase.apis import APIS
from partage.wire.types import Message

_FAILOVER_S: Final = 3.0
#: Members connect again after a back-off of at most 1 s, and then send a heartbeat.
_RECONNECT_S: Final = 2.0
_POLL_S: Final = 0.02
_RECORDS_PER_S: Final = 100
_MEMBERS_MAX: Final = 200
#: Beyond that, a slow member may lose its connection while it gets the metadata of a group.
_METADATA_BYTES_MAX: Final = 10_000_000

#: The default grid. A cell takes about a minute.
SOCKET_GRID: Final[Mapping[str, Sequence[float]]] = {"members": (10,)}


def expand_socket_grid(
    designs: Iterable[str],
    grid: Mapping[str, Sequence[float]],
    phases: tuple[str, ...] = SOCKET_PHASES,
) -> list[Workload]:
    """Return the cells of a grid, with short intervals where the grid does not set them.

    Args:
        designs: Names of designs or variants; the designs of `DESIGNS` if it is empty.
        grid: The values of each parameter.
        phases: The phases after "form".

    Raises:
        ValueError: A design does not exist, or a cell cannot run over sockets.
    """
    short = {name: (value,) for name, value in SOCKET_DEFAULTS.items() if name not in grid}
    cells = expand_grid(designs, {**grid, **short}, phases=phases)
    for cell in cells:
        validate_socket_cell(cell)
    return cells


def estimate_socket_s(cell: Workload) -> float:
    """Return about how many seconds a cell takes; most of them pass for its intervals."""
    heartbeat_s, session_s = cell.heartbeat_interval_ms / 1000, cell.session_timeout_ms / 1000
    settling_s = 3 * heartbeat_s * (1 + len(cell.phases))
    return settling_s + 10 * heartbeat_s + 4 * session_s + 2 * _FAILOVER_S + _RECONNECT_S


def run_socket_cells(cells: Iterable[Workload]) -> Generator[CellResult]:
    """Run cells one after the other, so that they do not disturb each other."""
    for cell in cells:
        yield run_socket_cell(cell)


def validate_socket_cell(workload: Workload) -> None:
    """Refuse a cell that cannot run over sockets.

    Raises:
        ValueError: The cell is too large, or a phase does not run over sockets.
    """
    for name, value, limit in (
        ("members", workload.members, _MEMBERS_MAX),
        (
            "bytes of metadata",
            int(workload.members * workload.metadata_kb * 1000),
            _METADATA_BYTES_MAX,
        ),
    ):
        if value > limit:
            raise ValueError(
                f"a cell over sockets has {value:,} {name}; the limit is {limit:,}. Run it in the "
                "simulator"
            )
    unknown = [each for each in workload.phases if each not in SOCKET_PHASES]
    if unknown:
        raise ValueError(
            f"the phase {unknown[0]!r} does not run over sockets. The phases are: "
            f"{', '.join(SOCKET_PHASES)}"
        )


def run_socket_cell(workload: Workload) -> CellResult:
    """Run one cell in real time.

    Raises:
        ValueError: The cell cannot run over sockets, or the design does not exist.
    """
    find_design(workload.design)
    validate_socket_cell(workload)
    return asyncio.run(_run(workload))


async def _run(workload: Workload) -> CellResult:
    async with SocketCell(workload) as cell:
        return await cell.run()


def now_ms() -> int:
    """Return the time of this machine's monotonic clock."""
    return time.monotonic_ns() // 1_000_000


def _codecs(design: Design) -> tuple[Callable[[], Codec], Callable[[], Codec]]:
    """Return what creates the codecs of a connection, at the coordinator and at a member."""
    match design:
        case BrokerSide():
            return BrokerCodec, ConsumerCodec
        case MultiAssignor():
            versions = ProtocolVersions((*SHARED_APIS, (MULTI_JOIN_GROUP, 0)))
        case SingleAssignor():
            versions = ProtocolVersions((*SHARED_APIS, (SINGLE_JOIN_GROUP, 0)))
        case TwoPhaseEager() | TwoPhaseCooperative():
            versions = ProtocolVersions(APIS, in_flight_max=5)
        case ConsumerProtocol848():
            versions = ProtocolVersions(CONSUMER_PROTOCOL_APIS, in_flight_max=5)
        case _:
            raise ValueError(f"{design.name} does not run over sockets")
    return partial(CoordinatorCodec, versions), partial(MemberCodec, versions)


class _CountingCodec(Codec):
    """Counts the frames of a connection at the coordinator."""

    def __init__(self, codec: Codec, traffic: Callable[[], Traffic]) -> None:
        self._codec = codec
        self._traffic = traffic

    @property
    def frame_bytes_max(self) -> int:  # type: ignore[override] # it may change between frames
        return self._codec.frame_bytes_max

    def encode(self, message: Message) -> bytes:
        frame = self._codec.encode(message)
        self._traffic().count(type(message).__name__, len(frame))
        return frame

    def decode(self, frame: bytes) -> Message:
        message = self._codec.decode(frame)
        self._traffic().count(type(message).__name__, len(frame))
        return message

    def error_response(self, frame: bytes) -> Message | None:
        return self._codec.error_response(frame)


class _MeasuredCoordinator:
    """Measures the CPU time of a coordinator's state machine."""

    def __init__(self, coordinator: CoordinatorMachine, traffic: Callable[[], Traffic]) -> None:
        self._coordinator = coordinator
        self._traffic = traffic

    def handle(self, event: Event) -> CoordinatorOutcome[Any, Any]:
        begin_ns = time.thread_time_ns()
        outcome = self._coordinator.handle(event)
        self._traffic().cpu_ns += time.thread_time_ns() - begin_ns
        return outcome

    def apply(self, record: Any) -> None:
        self._coordinator.apply(record)


class CellReader:
    """Reads partitions at the rate of the cell; see `PartitionReader`."""

    def __init__(self, name: str, readers: Readers) -> None:
        self.active: set[TopicPartition] = set()
        self._name = name
        self._readers = readers
        self._stopped: dict[TopicPartition, int] = {}
        self._suspended: dict[TopicPartition, int] = {}  # active ones of a suspended process

    def suspend(self) -> None:
        """Read nothing until `wake`."""
        self._suspended = self.positions(frozenset(self.active))
        for partition in sorted(self.active):
            self._readers.stop(self._name, partition, now_ms())

    def wake(self) -> None:
        """Read on in the partitions that were not stopped meanwhile."""
        suspended, self._suspended = self._suspended, {}
        for partition in sorted(suspended.keys() & self.active):
            self._start(partition, suspended[partition])

    def start(self, offsets: dict[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            self._stopped.pop(partition, None)
            self._start(partition, offset)

    def _start(self, partition: TopicPartition, offset: int) -> None:
        self.active.add(partition)
        self._readers.start(self._name, partition, offset, now_ms())

    def stop(self, partitions: frozenset[TopicPartition] | None) -> None:
        at_ms = now_ms()
        for partition in sorted(self.active if partitions is None else self.active & partitions):
            self._stopped[partition] = self._position(partition, at_ms)
            self.active.remove(partition)
            self._suspended.pop(partition, None)
            self._readers.stop(self._name, partition, at_ms)

    def resume(self, partitions: frozenset[TopicPartition]) -> None:
        for partition in sorted(partitions):
            self._start(partition, self._stopped.pop(partition))

    def positions(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        at_ms = now_ms()
        active = {each: self._position(each, at_ms) for each in partitions & self.active}
        return active | {each: self._stopped[each] for each in partitions & self._stopped.keys()}

    def _position(self, partition: TopicPartition, at_ms: int) -> int:
        suspended = self._suspended.get(partition)
        return self._readers.end_offset(partition, at_ms) if suspended is None else suspended


class _CellMember(SocketMemberShell):
    """A member of a cell. It can be paused, and killed without notice of its coordinator."""

    reader: CellReader

    def __init__(self, cell: SocketCell, template: MemberTemplate) -> None:
        super().__init__(
            cell.design.member(template),
            cell.new_member_codec,
            CellReader(template.name, cell.readers),
        )
        self.name = template.name
        self.is_alive = True
        self.is_leaving = False
        self.requests = 0
        self.requests_at_start = 0  # of them, those before the last assignment
        self._cell = cell
        self._deferred: deque[Event] = deque()
        self._is_paused = False

    @property
    def is_closed(self) -> bool:
        return self.is_leaving and not self.reader.active and self.machine.is_stable

    @property
    def is_settled(self) -> bool:
        """True if the member has nothing to do."""
        return self.machine.is_stable and not self._is_paused

    def start(self) -> None:
        super().start()
        self._spawn(self._refresh_metadata())

    async def find_coordinator(self, action: machine.Connect) -> Address:
        return self._cell.coordinator_address()

    async def fetch_metadata(self, *, is_from_coordinator: bool) -> dict[str, int]:
        return dict(self._cell.topics)

    async def _refresh_metadata(self) -> None:
        interval_s = self._cell.workload.metadata_refresh_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            self.handle(machine.PartitionCountsChanged(at_ms=0, topics=dict(self._cell.topics)))

    def handle(self, event: Event) -> None:
        if self._is_paused:
            self._deferred.append(event)
        elif self.is_alive:
            super().handle(event)

    def perform(self, action: machine.Action) -> None:
        for delay_ms, event in self._cell.design.perform(action):
            self._loop.call_later(delay_ms / 1000, self.handle, event)

    def _perform(self, action: machine.Action) -> None:
        match action:
            case machine.Send():
                self.requests += 1
            case machine.StartReading():
                self.requests_at_start = self.requests
        super()._perform(action)

    def leave(self) -> None:
        self.is_leaving = True
        super().leave()

    def crash(self) -> None:
        """Kill the member together with its machine: its connection stays open."""
        self.reader.stop(None)
        self.is_alive = False

    def pause(self) -> None:
        """Stop the member. It reads and handles nothing."""
        self._is_paused = True
        self.reader.suspend()

    def resume(self) -> None:
        """Continue the member with what has happened meanwhile."""
        self._is_paused = False
        while self._deferred:
            self.handle(self._deferred.popleft())
        self.fire_due_timers()
        self.reader.wake()


class SocketCell:
    """A coordinator and members over sockets, which go through the phases of a workload.

    Args:
        workload: The workload. `validate_socket_cell` accepts it.
        poll_s: How often to check whether the group is stable.
    """

    def __init__(self, workload: Workload, poll_s: float = _POLL_S) -> None:
        self.workload = workload
        self._poll_s = poll_s
        self.design = workload.create_design()
        self.topics = dict(workload.partitions_by_topic)
        self.readers = Readers(_RECORDS_PER_S)
        self.traffic = Traffic()
        self.members: list[_CellMember] = []
        self._new_coordinator_codec, self.new_member_codec = _codecs(self.design)
        self._records: list[Any] = []
        self._server: CoordinatorServer | None = None
        self._address: Address | None = None
        self._failure: Exception | None = None
        self._started = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> SocketCell:
        for topic, count in self.topics.items():
            self._create_partitions(topic, range(count))
        await self._start_coordinator()
        return self

    async def __aexit__(self, *exception: object) -> None:
        for task in self._tasks:
            task.cancel()
        for member in self.members:
            member.stop()
        await self._stop_coordinator()

    # Coordinator

    def coordinator_address(self) -> Address:
        """Return the address of the coordinator; raise OSError if there is none."""
        if self._address is None:
            raise ConnectionRefusedError("there is no coordinator")
        return self._address

    async def append(self, records: Sequence[Any]) -> None:
        """Store records of the coordinator."""
        self._records.extend(records)
        for record in records:
            offset = getattr(record, "offset", None)
            if offset is not None:
                self.readers.commit(TopicPartition(record.topic, record.partition), offset)

    async def _start_coordinator(self) -> None:
        coordinator = _MeasuredCoordinator(self.design.coordinator(), lambda: self.traffic)
        for record in self._records:
            coordinator.apply(record)
        server = self._server = CoordinatorServer(
            coordinator,
            lambda: _CountingCodec(self._new_coordinator_codec(), lambda: self.traffic),
            self,
            self._on_fatal,
        )
        if self.design.watches_topics:
            server.handle(machine.Elected(at_ms=server.now_ms(), topics=dict(self.topics)))
        self._address = await server.listen("127.0.0.1", 0)

    async def _stop_coordinator(self) -> None:
        server, self._server, self._address = self._server, None, None
        if server is not None:
            await server.close()

    def _on_fatal(self, error: Exception) -> None:
        self._failure = error

    # Members and topics

    def start_members(self, count: int) -> None:
        """Start members with the next free names."""
        for _ in range(count):
            member = _CellMember(self, self.workload.member(self._started))
            self._started += 1
            self.members.append(member)
            member.start()

    def _create_partitions(self, topic: str, numbers: Sequence[int]) -> None:
        self.readers.create([TopicPartition(topic, each) for each in numbers], now_ms())

    @property
    def _live_members(self) -> list[_CellMember]:
        return [each for each in self.members if each.is_alive and each.error is None]

    def _readers(self) -> list[_CellMember]:
        return [each for each in self._live_members if each.reader.active]

    # Phases

    async def run(self) -> CellResult:
        """Run all phases."""
        results = [await self.measure("form")]
        results += [await self.measure(phase) for phase in self.workload.phases]
        return CellResult(
            workload=self.workload,
            phases=results,
            broken_rules=[f"{each.rule}: {each.description}" for each in self.readers.broken],
            double_read_s=self.readers.double_read_ms / 1000,
        )

    async def measure(self, phase: str) -> PhaseResult:
        """Run one phase, "form" or one of `SOCKET_PHASES`.

        Raises:
            Exception: The coordinator's state machine has failed.
        """
        self.traffic.take()
        self.readers.take(now_ms())
        for member in self.members:
            member.requests = member.requests_at_start = 0
        counted = PhaseTraffic(now_ms())
        await self._disturb(phase)
        is_stable = await self._wait_until_settled(counted)
        if not is_stable:
            counted.count(self.traffic, now_ms())
        requests = [each.requests_at_start for each in self.members]
        reading = self.readers.take(now_ms())
        return counted.result(phase, reading, requests, is_stable=is_stable)

    async def _disturb(self, phase: str) -> None:
        workload = self.workload
        match phase:
            case "form":
                self.start_members(workload.members)
            case "steady":
                await asyncio.sleep(10 * workload.heartbeat_interval_ms / 1000)
            case "join":
                self.start_members(workload.joining)
            case "leave":
                self._readers()[0].leave()
            case "crash":
                for member in self._readers()[: workload.kills]:
                    member.crash()
            case "pause":
                self._pause(self._readers()[: workload.paused])
            case "churn":
                for member in self._readers()[: workload.churn]:
                    self.start_members(1)
                    member.leave()
                    await asyncio.sleep(2 * workload.heartbeat_interval_ms / 1000)
            case "coordinator loss":
                await self._stop_coordinator()
                self._call_later(_FAILOVER_S, self._start_coordinator)
                # Members that stay stable must have reached the new coordinator.
                await asyncio.sleep(_FAILOVER_S + _RECONNECT_S)
            case "new partitions":
                self._add_partitions()

    def _pause(self, members: list[_CellMember]) -> None:
        for member in members:
            member.pause()

        async def resume() -> None:
            for member in members:
                member.resume()

        self._call_later(2 * self.workload.session_timeout_ms / 1000, resume)

    def _call_later(self, delay_s: float, call: Callable[[], Any]) -> None:
        async def wait() -> None:
            await asyncio.sleep(delay_s)
            await call()

        task = asyncio.get_running_loop().create_task(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _add_partitions(self) -> None:
        topic, before = next(iter(self.topics.items()))
        self.topics[topic] = before + max(1, self.workload.partition_count // 10)
        self._create_partitions(topic, range(before, self.topics[topic]))
        if self.design.watches_topics and self._server is not None:
            changed = machine.ClusterTopicsChanged(
                at_ms=self._server.now_ms(), topics=dict(self.topics)
            )
            self._server.handle(changed)

    @property
    def _is_stable(self) -> bool:
        live = self._live_members
        return (
            self._server is not None
            and all(each.is_settled for each in live)
            and all(len(each.readers) == 1 for each in self.readers.partitions.values())
        )

    async def _wait_until_settled(self, counted: PhaseTraffic) -> bool:
        """Wait until nothing changes for longer than a member needs to notice a rebalance.

        Raises:
            Exception: The coordinator's state machine has failed.
        """
        workload = self.workload
        end_ms = now_ms() + workload.phase_timeout_ms
        quiet_ms = 3 * workload.heartbeat_interval_ms
        since_ms: int | None = None
        while (at_ms := now_ms()) < end_ms:
            if self._failure is not None:
                raise self._failure
            if not self._is_stable:
                since_ms = None
            elif since_ms is None:
                since_ms = at_ms
                counted.count(self.traffic, at_ms)
            elif at_ms - since_ms >= quiet_ms:
                return True
            await asyncio.sleep(self._poll_s)
        return False
