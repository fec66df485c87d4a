"""The demo's story, step by step; see the package's docstring."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from partage.client import LATEST, ClientError, Cluster, list_offsets
from partage.demo.coverage import Tally
from partage.demo.delays import SparkStarting, mean_delays, read_figures, write
from partage.demo.figures import Figures, differences, figures_from_csv
from partage.demo.flights import COUNTS, FLIGHTS, PARTITIONS, WEATHER, NoFlights, records
from partage.demo.group import Group, GroupTrouble, Owners, Rebalance
from partage.demo.loading import NotLoaded, create_topics, load
from partage.demo.picture import draw
from partage.demo.telling import Telling
from partage.spark import NoJava
from partage.testing import BrokerProcess

GROUP: Final = "departure-boards"
MEMBERS: Final = ("ada", "ben", "cleo")
KILLED: Final = "ben"
SPARK_LOG: Final = "spark.log"
_SETTLE_S: Final = 60.0
_DRAIN_S: Final = 60.0
#: Long enough for three members to come together, much less than Kafka's 3 s.
_OVERRIDES: Final = {"group.initial.rebalance.delay.ms": "1000"}


class Failed(Exception):  # noqa: N818 - named after what happened
    """Something came out other than it should; the message says what."""


def main() -> None:
    """Run the demo; ends with code 1 and the reason if anything is not as it should be."""
    typer.run(_command)


def _command(
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the table and the picture are written.")
    ] = Path("demo-output"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the broker's data, in DIR/broker-data.")
    ] = False,
) -> None:
    """Flights through a consumer group, a member killed, then Spark; all of it checked."""
    try:
        Demo(output, keep).run()
    except (Failed, NoFlights, NoJava, GroupTrouble, NotLoaded, ClientError) as error:
        sys.exit(f"\nThe demo failed: {error}")
    except KeyboardInterrupt:
        print("\nInterrupted; everything that was started is ended.", file=sys.stderr)
        sys.exit(130)


class Demo:
    """One run: what it has started is ended with it, however it ends."""

    def __init__(self, output: Path, keep: bool) -> None:
        self._output = output
        self._keep = keep
        self._tell = Telling()

    def run(self) -> None:
        """All steps. Raises what `_command` knows."""
        _check_installed()
        self._output.mkdir(parents=True, exist_ok=True)
        tell = self._tell
        with ExitStack() as stack:
            with tell.step("A broker, and Java for Spark in the background"):
                servers = self._start_broker(stack)
                spark = SparkStarting(self._output / SPARK_LOG)
                stack.callback(spark.stop)
                create_topics(servers, [WEATHER, FLIGHTS])
                tell.say(f"listens on {servers}; Java {spark.java.version} ({spark.java.source})")
            with tell.step("Three consumers share the flights in a group"):
                group = stack.enter_context(Group(servers, GROUP, FLIGHTS, PARTITIONS))
                for name in MEMBERS:
                    group.start(name)
                owners = group.settle(within_s=_SETTLE_S)
                tell.owners(owners)
            with tell.step(f"All flights and weather go in; half-way, {KILLED} is killed (-9)"):
                watching = self._load(servers, group, owners)
            with tell.step("The rebalance"):
                tell.rebalance(watching.result())
            with tell.step("Every flight was read"):
                self._count(servers, group)
            with tell.step("Spark joins flights and weather"):
                table = self._output / "delays.parquet"
                figures, truth = self._compute(spark, servers, table)
            with tell.step("Spark's figures beside those from the CSV files"):
                self._compare(figures, truth)
            with tell.step("The picture"):
                picture = self._output / "delays.png"
                draw(figures, picture)
        self._end(table, picture)

    def _start_broker(self, stack: ExitStack) -> str:
        if self._keep:
            place = self._output / "broker-data"
            shutil.rmtree(place, ignore_errors=True)
        else:
            place = Path(tempfile.mkdtemp(prefix="partage-demo-"))
            stack.callback(shutil.rmtree, place, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
        broker = BrokerProcess(place, overrides=_OVERRIDES)
        stack.callback(broker.remove)
        try:
            return broker.start().bootstrap_servers
        except RuntimeError as error:
            raise Failed(str(error)) from error

    def _load(self, servers: str, group: Group, owners: Owners) -> _Watching:
        """Fill both topics, and kill a member on the way."""
        with self._tell.bar(WEATHER, COUNTS[WEATHER]) as show:
            count = load(servers, WEATHER, records(WEATHER), show)
        _expect("weather records acknowledged", count, COUNTS[WEATHER])
        watching: _Watching | None = None
        with self._tell.bar(FLIGHTS, COUNTS[FLIGHTS]) as show:

            def progress(handed: int) -> None:
                nonlocal watching
                show(handed)
                if watching is None and handed >= COUNTS[FLIGHTS] // 2:
                    group.kill(KILLED)
                    watching = _Watching(lambda: group.watch(owners, within_s=_SETTLE_S))

            count = load(servers, FLIGHTS, records(FLIGHTS), progress)
        _expect("flights acknowledged", count, COUNTS[FLIGHTS])
        assert watching is not None
        return watching

    def _count(self, servers: str, group: Group) -> None:
        ends = asyncio.run(_ends(servers))
        group.drain(ends, within_s=_DRAIN_S)
        group.leave()
        tally: Tally = group.coverage.tally(ends)
        _expect("flights in the topic", tally.records, COUNTS[FLIGHTS])
        _expect("flights that nobody read", tally.missed, 0)
        self._tell.say(f"{tally.records:,} flights, each read at least once; the group's lag is 0")
        self._tell.say(
            f"{tally.again:,} were read twice: what {KILLED} had read and not yet committed"
            if tally.again
            else f"none was read twice: {KILLED} had committed all it had read"
        )

    def _compute(self, spark: SparkStarting, servers: str, table: Path) -> tuple[Figures, Figures]:
        """Spark's figures, and meanwhile those from the files."""
        with ThreadPoolExecutor(1) as beside:
            truth = beside.submit(figures_from_csv)
            try:
                session = spark.session()
                self._tell.say("the session is up")
                write(mean_delays(session, servers), table)
            except Exception as error:  # what Spark raises is of many kinds
                log = self._output / SPARK_LOG
                raise Failed(f"Spark: {error}\nMore may be in {log}") from error
            return read_figures(table), truth.result()

    def _compare(self, figures: Figures, truth: Figures) -> None:
        wrong = differences(figures, truth)
        if wrong:
            raise Failed("Spark and the CSV files differ:\n  " + "\n  ".join(wrong))
        _expect("flights with weather", figures.joined, 335_220)
        _expect("flights without weather", figures.without_weather, 1_556)
        _expect("flights without a departure delay", figures.without_delay, 8_255)
        self._tell.say(f"{figures.joined:,} flights have weather, {figures.without_weather:,} none")
        self._tell.say(f"{figures.without_delay:,} have no departure delay and are in no mean")
        self._tell.say(f"{len(figures.cells)} groups: counts equal, means equal to 1e-9")

    def _end(self, table: Path, picture: Path) -> None:
        tell = self._tell
        tell.console.rule()
        tell.times()
        used = os.times()
        tell.say(
            f"CPU: {used.user + used.system:.0f} s here, "
            f"{used.children_user + used.children_system:.0f} s in the processes started"
        )
        tell.say(f"mean delays  {table}")
        tell.say(f"picture      {picture}")
        if self._keep:
            tell.say(f"broker data  {self._output / 'broker-data'}")


class _Watching:
    """Waits for a rebalance in a thread, while the load goes on."""

    def __init__(self, watch: Callable[[], Rebalance]) -> None:
        self._watch = watch
        self._found: Rebalance | BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> Rebalance:
        self._thread.join()
        if isinstance(self._found, BaseException):
            raise self._found
        assert self._found is not None
        return self._found

    def _run(self) -> None:
        try:
            self._found = self._watch()
        except BaseException as error:  # told to whoever waits
            self._found = error


def _check_installed() -> None:
    missing = [name for name in ("pyspark", "pyarrow", "matplotlib") if find_spec(name) is None]
    if missing:
        raise Failed(f"{', '.join(missing)} is not installed: make setup, or partage[demo]")


async def _ends(servers: str) -> dict[int, int]:
    """Where the partitions of the flights end."""
    async with Cluster(servers) as cluster:
        topic = (await cluster.topics([FLIGHTS]))[FLIGHTS]
        found = await list_offsets(cluster, dict.fromkeys(topic.topic_partitions, LATEST))
    return {p.partition: 0 if end is None else end.offset for p, end in found.items()}


def _expect(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise Failed(f"{what}: {found:,}, not {wanted:,}")
