"""The steps of the demo; see the package's docstring."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from examples.flights.applications import ApplicationError, Applications
from examples.flights.archive_results import Entries, archived_rows, rows_by_partition
from examples.flights.csv_records import (
    COUNTS,
    FLIGHTS,
    PARTITIONS,
    WEATHER,
    FlightsNotInstalledError,
    records,
)
from examples.flights.delay_chart import draw
from examples.flights.delays import read_figures
from examples.flights.figures import Figures, differences, figures_from_csv
from examples.flights.loader import LoadError, PacedRows, create_topics, load
from examples.flights.progress_report import ProgressReport
from examples.flights.timeline import Owners
from examples.flights.timeline_chart import draw_timeline
from partage.errors import ClientError
from partage.pipelines.archive.directory import ArchiveDirectory
from partage.spark import JavaNotFoundError, prepare_java
from partage.sync import Consumer
from partage.testing import BrokerProcess

GROUP: Final = "departure-boards"
FIRST, KILLED, THIRD = "ada", "ben", "cleo"
_START_S: Final = 180.0
_SETTLE_S: Final = 120.0
_DRAIN_S: Final = 240.0
#: Flights per second while applications start and stop. A third of the flights is available at
#: first, another third with three applications, the rest after the kill.
_RATE: Final = 1_500
_THIRD: Final = COUNTS[FLIGHTS] // 3


class DemoError(Exception):
    """Raised if a result is not as expected; the message says which."""


def main() -> None:
    """Run the demo. Exits with code 1 and the reason if a result is not as expected."""
    typer.run(_command)


def _command(
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Output directory for tables and charts.")
    ] = Path("demo-output"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the broker's data, in DIR/broker-data.")
    ] = False,
) -> None:
    """Share flights between Spark applications, kill one, and check all results."""
    try:
        Demo(output, keep).run()
    except (
        DemoError,
        FlightsNotInstalledError,
        JavaNotFoundError,
        ApplicationError,
        LoadError,
        ClientError,
    ) as error:
        sys.exit(f"\nThe demo failed: {error}")
    except KeyboardInterrupt:
        print("\nInterrupted; all started processes were stopped.", file=sys.stderr)
        sys.exit(130)


class Demo:
    """One run of the demo. Everything that it starts is stopped with it."""

    def __init__(self, output: Path, keep: bool) -> None:
        self._output = output.resolve()
        self._keep = keep
        self._tell = ProgressReport()
        self._joined = self._output / "flights-with-weather"
        self._table = self._output / "delays.parquet"
        self._entries = Entries(self._joined)

    def run(self) -> None:
        """Run all steps.

        Raises:
            Exception: The errors that `_command` reports.
        """
        _check_installed()
        self._output.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._joined, ignore_errors=True)
        archive = ArchiveDirectory(self._joined)
        tell = self._tell
        with ExitStack() as stack:
            with tell.step("Start a broker and load the weather"):
                java = prepare_java()
                servers = self._start_broker(stack)
                create_topics(servers, [WEATHER, FLIGHTS])
                count = load(servers, WEATHER, records(WEATHER), lambda handed: None)
                _expect("weather records acknowledged", count, COUNTS[WEATHER])
                tell.say(f"broker listens on {servers}; Java {java.version} ({java.source})")
            applications = stack.enter_context(
                Applications(servers, GROUP, PARTITIONS, self._output)
            )
            flights = stack.enter_context(_Flights(servers))
            bars = stack.enter_context(
                tell.bars(("flights in the topic", "joined by Spark"), COUNTS[FLIGHTS])
            )
            bars(lambda: (flights.handed, _rows(archive)))
            self._share(applications, flights, archive)
            with tell.step("Compute the mean delays in Spark and from the CSV files"):
                figures, truth = self._compute(applications)
            bars(None)
            with tell.step("Check that each flight is in the table exactly once"):
                self._count(servers)
                self._compare(figures, truth)
            with tell.step("Draw the charts"):
                owners, delays = self._output / "owners.png", self._output / "delays.png"
                ticks = archived_rows(self._entries.refresh(), applications.since_began_s)
                draw_timeline(applications.timeline, ticks, (FIRST, KILLED, THIRD), owners)
                draw(figures, delays)
        self._end(owners, delays)

    def _share(
        self, applications: Applications, flights: _Flights, archive: ArchiveDirectory
    ) -> None:
        """Start two applications, then a third, kill one, and wait until all flights are joined."""
        tell = self._tell
        with tell.step(f"Start two applications, {FIRST} and {KILLED}"):
            for name in (FIRST, KILLED):
                applications.start(name, self._joined, self._table)
            owners = applications.wait_until_stable(within_s=_START_S)
            tell.owners(owners)
            applications.wait(lambda: _rows(archive) > 0, _DRAIN_S, lambda: "joined any flight")
        with tell.step(f"Start a third application, {THIRD}"):
            applications.start(THIRD, self._joined, self._table)
            owners = self._rebalanced(applications, owners)
            applications.timeline.add_event(f"{THIRD} joins", applications.since_began_s())
            flights.release()
            applications.wait(
                lambda: any(entry.by == THIRD for entry in self._entries.refresh()),
                _DRAIN_S,
                lambda: f"archived a row of {THIRD}",
            )
        with tell.step(f"Kill {KILLED} and its Java process (SIGKILL)"):
            applications.kill(KILLED)
            flights.hurry()
            self._rebalanced(applications, owners)
        with tell.step("Join the remaining flights"):
            _expect("flights acknowledged", flights.acknowledged(), COUNTS[FLIGHTS])
            applications.wait(
                lambda: _rows(archive) >= COUNTS[FLIGHTS],
                _DRAIN_S,
                lambda: f"joined all flights, only {_rows(archive):,}",
            )
            applications.stop_watching()

    def _rebalanced(self, applications: Applications, before: Owners) -> Owners:
        after = applications.wait_until_stable(within_s=_SETTLE_S)
        self._tell.rebalance(before, after)
        return after

    def _start_broker(self, stack: ExitStack) -> str:
        if self._keep:
            place = self._output / "broker-data"
            shutil.rmtree(place, ignore_errors=True)
        else:
            place = Path(tempfile.mkdtemp(prefix="partage-demo-"))
            stack.callback(shutil.rmtree, place, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
        broker = BrokerProcess(place)
        stack.callback(broker.remove)
        try:
            return broker.start().bootstrap_servers
        except RuntimeError as error:
            raise DemoError(str(error)) from error

    def _compute(self, applications: Applications) -> tuple[Figures, Figures]:
        """Return Spark's figures and, computed concurrently, those from the files."""
        with ThreadPoolExecutor(1) as beside:
            truth = beside.submit(figures_from_csv)
            finished = applications.finish(FIRST, within_s=_START_S)
            applications.leave()
            self._tell.say(f"{FIRST} joined {finished['rows']:,} flights, and computed the means")
            return read_figures(self._table), truth.result()

    def _count(self, servers: str) -> None:
        """Check that each record of the topic has one row, and that there are no other rows."""
        ends = _end_offsets(servers)
        _expect("flights in the topic", sum(ends.values()), COUNTS[FLIGHTS])
        report = ArchiveDirectory(self._joined).manifest.report("")
        found: Counter[int] = Counter()
        for partition, offsets in rows_by_partition(self._joined).items():
            _expect(f"different rows of partition {partition}", len(set(offsets)), ends[partition])
            _expect(f"last offset of partition {partition}", max(offsets), ends[partition] - 1)
            found[partition] = len(offsets)
        _expect("rows in the Parquet files", sum(found.values()), COUNTS[FLIGHTS])
        self._tell.say(f"{sum(found.values()):,} flights, each exactly once in the table")
        again = f"{report.refused:,} duplicate rows were skipped"
        self._tell.say(again if report.refused else "no duplicate rows")

    def _compare(self, figures: Figures, truth: Figures) -> None:
        wrong = differences(figures, truth)
        if wrong:
            raise DemoError("Spark and the CSV files differ:\n  " + "\n  ".join(wrong))
        _expect("flights with weather", figures.joined, 335_220)
        _expect("flights without weather", figures.without_weather, 1_556)
        _expect("flights without a departure delay", figures.without_delay, 8_255)
        self._tell.say(f"{figures.joined:,} flights have weather, {figures.without_weather:,} none")
        self._tell.say(f"{figures.without_delay:,} have no departure delay and are in no mean")
        self._tell.say(f"{len(figures.cells)} groups: counts equal, means equal to 1e-9")

    def _end(self, owners: Path, delays: Path) -> None:
        tell = self._tell
        tell.console.rule()
        tell.times()
        tell.say(f"the table    {self._joined}")
        tell.say(f"mean delays  {self._table}, {delays}")
        tell.say(f"owners       {owners}")
        if self._keep:
            tell.say(f"broker data  {self._output / 'broker-data'}")


class _Flights:
    """Produces the flights in a thread, slowly and in thirds until `hurry`."""

    def __init__(self, servers: str) -> None:
        self.handed = 0
        self._paced = PacedRows(records(FLIGHTS), _RATE, _THIRD)
        self._loading = ThreadPoolExecutor(1)
        self._count = self._loading.submit(load, servers, FLIGHTS, self._paced, self._note)

    def __enter__(self) -> _Flights:
        return self

    def __exit__(self, *ended: object) -> None:
        self._paced.stop()
        self._loading.shutdown()

    def release(self) -> None:
        """Release the second third of the flights."""
        self._paced.release(_THIRD)

    def hurry(self) -> None:
        """Produce all remaining flights without a pause."""
        self._paced.hurry()

    def acknowledged(self) -> int:
        """Return the number of acknowledged flights, after the last one.

        Raises:
            LoadError: Not all flights were acknowledged.
        """
        return self._count.result()

    def _note(self, handed: int) -> None:
        self.handed = handed


def _rows(archive: ArchiveDirectory) -> int:
    with _LOOKING:
        archive.refresh()
        return archive.manifest.report("").rows


_LOOKING = threading.Lock()


def _check_installed() -> None:
    missing = [name for name in ("pyspark", "pyarrow", "matplotlib") if find_spec(name) is None]
    if missing:
        raise DemoError(f"not installed: {', '.join(missing)}; run make setup")


def _end_offsets(servers: str) -> dict[int, int]:
    """Return the end offsets of the flights' partitions, by partition."""
    with Consumer(servers) as consumer:
        ends = consumer.end_offsets(consumer.partitions_of(FLIGHTS))
    return {each.partition: end for each, end in ends.items()}


def _expect(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise DemoError(f"{what}: found {found:,}, expected {wanted:,}")
