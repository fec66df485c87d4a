"""``partage proposal broker-side``: the first design, over sockets and ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
import typer

from partage.broker.cluster.state_address import StateAddressError, parse_state
from partage.client.addresses import InvalidAddressError, parse_bootstrap_servers
from partage.client.errors import ClientError
from partage.console.common.client_options import consumer_options, own_client_options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import JsonOption, with_cluster
from partage.console.common.output import discard_stdout, json_help, note, print_json
from partage.console.proposal.process_options import address_option, log_to_stderr
from partage.console.proposal.record_printer import record_printer
from partage.console.records.record_json import JsonRecord
from partage.model.addresses import is_wildcard
from partage.model.arguments import INT32_MAX
from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.messages import BrokerAddress, PushError
from partage.proposals.broker_side.records import is_group_id
from partage.proposals.broker_side.settings import (
    PushConsumerSettings,
    PushCoordinatorSettings,
    RebalanceMethod,
)
from partage.proposals.broker_side.topic_count import pattern_topic_count, static_topic_count
from partage.proposals.sockets.foreground import ForegroundError
from partage.store.zookeeper import StoreError

if TYPE_CHECKING:
    from partage.proposals.sockets.broker_side.push_broker import PushBrokerOptions
    from partage.proposals.sockets.broker_side.zookeeper_nodes import ZooKeeperNodes

app = command_app()

T = TypeVar("T")

StateOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="zookeeper://HOST:PORT/PATH",
        help="The ZooKeeper of the election, the offsets and the owners; all nodes are below PATH.",
    ),
]
GroupArgument: TypeAlias = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]

LISTEN_DEFAULT: Final = "127.0.0.1:9292"
_BROKER: Final = PushCoordinatorSettings()
_SESSION_MS: Final = 45_000
#: Options of the fetchers that the design decides.
_OWN_OPTIONS: Final = ("group_id", "group_instance_id", "auto_offset_reset", "enable_auto_commit")


class RebalanceMethodName(StrEnum):
    """The ways in which the coordinator takes partitions from consumers."""

    STOP_FETCHERS = "stop-fetchers"
    CLOSE_CONNECTIONS = "close-connections"


class RebalancingState(msgspec.Struct, frozen=True):
    """Output of ``freeze --json`` and ``thaw --json``."""

    group: str
    is_frozen: bool


class FrozenGroups(msgspec.Struct, frozen=True):
    """Output of ``frozen --json``."""

    groups: list[str]


class OutOfRangeReset(StrEnum):
    """The offset to read if one is out of range, or none is committed."""

    SMALLEST = "smallest"
    LARGEST = "largest"


def _setting(
    name: str, document_name: str, *aliases: str, metavar: str = "MS", least: int = 1
) -> Any:
    """Return the option of a setting, with its name in section 4 of the document.

    Args:
        name: The name of the option.
        document_name: Its help: the name in section 4.
        aliases: Further names, after those in other sections of the document.
        metavar: The unit.
        least: The least value.
    """
    return typer.Option(
        name, *aliases, metavar=metavar, min=least, max=INT32_MAX, help=document_name
    )


@app.command("broker")
@with_cluster("--timeout-ms")
def broker(
    cluster: ClusterClient,
    state: StateOption,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0 is any."),
    ] = LISTEN_DEFAULT,
    broker_id: Annotated[
        int,
        typer.Option("--id", metavar="N", min=0, max=INT32_MAX, help="Id, unique in PATH."),
    ] = 0,
    advertised: Annotated[
        str | None,
        typer.Option("--advertised", metavar="HOST:PORT", help="Address for consumers."),
    ] = None,
    rebalance_threadpool_size: Annotated[
        int,
        _setting(
            "--rebalance-threadpool-size",
            "Rebalancing threadpool size: the number of rebalance handlers.",
            metavar="N",
        ),
    ] = _BROKER.rebalance_threadpool_size,
    rebalance_queue_size: Annotated[
        int,
        _setting(
            "--rebalance-queue-size", "Tasks in the queue of a rebalance handler.", metavar="N"
        ),
    ] = _BROKER.rebalance_queue_size,
    session_timeout_min_ms: Annotated[
        int,
        _setting("--session-timeout-min-ms", "Minimum viable value for consumer session timeout."),
    ] = _BROKER.session_timeout_min_ms,
    ping_retries_max: Annotated[
        int,
        _setting(
            "--ping-retries-max",
            "Maximum number of timed out heartbeats to consumers.",
            metavar="N",
            least=0,
        ),
    ] = _BROKER.ping_retries_max,
    offset_commit_interval_ms: Annotated[
        int, _setting("--offset-commit-interval-ms", "Offset committing (to ZK) interval.")
    ] = _BROKER.offset_commit_interval_ms,
    rebalance_retries_max: Annotated[
        int,
        _setting(
            "--rebalance-retries-max",
            "Maximum rebalance retries.",
            "--max-rebalance-retries",
            metavar="N",
            least=0,
        ),
    ] = _BROKER.rebalance_retries_max,
    rebalance_backoff_ms: Annotated[
        int,
        _setting("--rebalance-backoff-ms", "Rebalance backoff time (in milliseconds).", least=0),
    ] = _BROKER.rebalance_backoff_ms,
    rebalance_method: Annotated[
        RebalanceMethodName,
        typer.Option(
            "--rebalance-method",
            help="Stop and start fetchers (section 9), or close connections (section 2).",
        ),
    ] = RebalanceMethodName.STOP_FETCHERS,
    zookeeper_session_timeout_ms: Annotated[
        int,
        _setting("--zookeeper-session-timeout-ms", "The broker's session timeout in ZooKeeper."),
    ] = 6_000,
    topic_refresh_ms: Annotated[
        int,
        _setting(
            "--topic-refresh-ms", "Interval of copying topics from --bootstrap-server to ZooKeeper."
        ),
    ] = 1_000,
) -> None:
    """Run a broker that can be elected as the coordinator, until Ctrl-C or SIGTERM.

    It prints its address when it accepts connections. The records stay on the brokers of
    --bootstrap-server. Brokers with the same --state elect one coordinator.

    \b
    Examples:
      partage proposal broker-side broker --state zookeeper://localhost:2181/first --id 1
    """
    log_to_stderr(logging.INFO if cluster.verbose else logging.WARNING)
    host, port = address_option("--listen", listen)
    if is_wildcard(host) and advertised is None:
        raise usage_error(
            f"--listen {host!r} means all addresses, and consumers need one of them; add "
            "--advertised HOST:PORT"
        )
    try:
        address = parse_state(state)
        settings = PushCoordinatorSettings(
            rebalance_threadpool_size=rebalance_threadpool_size,
            rebalance_queue_size=rebalance_queue_size,
            session_timeout_min_ms=session_timeout_min_ms,
            ping_retries_max=ping_retries_max,
            offset_commit_interval_ms=offset_commit_interval_ms,
            rebalance_retries_max=rebalance_retries_max,
            rebalance_backoff_ms=rebalance_backoff_ms,
            rebalance_method=RebalanceMethod[rebalance_method.name],
            broker_id=broker_id,
        )
    except (StateAddressError, ValueError) as error:
        raise usage_error(str(error)) from None
    from partage.proposals.sockets.broker_side.push_broker import PushBrokerOptions

    asyncio.run(
        _serve(
            cluster,
            PushBrokerOptions(
                state=address,
                settings=settings,
                host=host,
                port=port,
                advertised=None
                if advertised is None
                else address_option("--advertised", advertised),
                zookeeper_session_timeout_ms=zookeeper_session_timeout_ms,
                topic_refresh_ms=topic_refresh_ms,
            ),
        )
    )


@app.command("freeze", epilog=json_help(RebalancingState))
def freeze(group: GroupArgument, state: StateOption, json: JsonOption = False) -> None:
    """Disable the rebalances of a group until `thaw`.

    Its consumers keep their partitions. A rebalance in progress is completed. A consumer that
    registers meanwhile, also with a new coordinator, reads nothing until the group is thawed.

    \b
    Examples:
      partage proposal broker-side freeze readers --state zookeeper://localhost:2181/first
    """
    _check_group(group)
    _in_zookeeper(state, lambda nodes: nodes.freeze_group(group))
    _print_state(group, json, is_frozen=True)


@app.command("thaw", epilog=json_help(RebalancingState))
def thaw(group: GroupArgument, state: StateOption, json: JsonOption = False) -> None:
    """Enable the rebalances of a group again.

    Changes since `freeze` take effect.

    \b
    Examples:
      partage proposal broker-side thaw readers --state zookeeper://localhost:2181/first
    """
    _check_group(group)
    if not _in_zookeeper(state, lambda nodes: nodes.thaw_group(group)):
        raise CommandError(f"group {group!r} is not frozen")
    _print_state(group, json, is_frozen=False)


@app.command("frozen", epilog=json_help(FrozenGroups))
def frozen(state: StateOption, json: JsonOption = False) -> None:
    """Print the groups whose rebalancing is off, one per line.

    \b
    Examples:
      partage proposal broker-side frozen --state zookeeper://localhost:2181/first
    """
    groups = sorted(_in_zookeeper(state, lambda nodes: nodes.frozen_groups(lambda: None)))
    if json:
        print_json(FrozenGroups(groups))
        return
    for group in groups:
        print(group)


def _print_state(group: str, json: bool, *, is_frozen: bool) -> None:
    if json:
        print_json(RebalancingState(group, is_frozen))
    else:
        note(f"group {group!r} is {'frozen' if is_frozen else 'no longer frozen'}")


def _check_group(group: str) -> None:
    if not is_group_id(group):
        raise usage_error(
            f"{group!r} is not a valid group id: use at most 249 letters, digits, '.', '_' and "
            "'-'; 'coordinator' is reserved"
        )


def _in_zookeeper(state: str, work: Callable[[ZooKeeperNodes], Awaitable[T]]) -> T:
    from partage.proposals.sockets.broker_side.zookeeper_nodes import use_nodes

    try:
        return asyncio.run(use_nodes(parse_state(state), work))
    except StateAddressError as error:
        raise usage_error(str(error)) from None
    except (StoreError, OSError) as error:
        raise CommandError(f"ZooKeeper at {state!r}: {error}") from None


async def _serve(cluster: ClusterClient, options: PushBrokerOptions) -> None:
    from partage.proposals.sockets.broker_side.foreground import serve_broker
    from partage.proposals.sockets.broker_side.kafka_topics import KafkaTopics

    topics = KafkaTopics(
        cluster.bootstrap_servers, own_client_options(cluster.properties, cluster.timeout_ms)
    )
    try:
        await topics.read()
        await serve_broker(
            msgspec.structs.replace(options, topic_source=topics.read),
            lambda bound: print(bound, flush=True),
        )
    except (ForegroundError, OSError) as error:
        raise CommandError(str(error)) from None
    finally:
        topics.close()


@app.command("consumer", epilog=json_help(JsonRecord, "prints one line per record:"))
@with_cluster("--timeout-ms")
def consumer(
    cluster: ClusterClient,
    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The group.")],
    broker_list: Annotated[
        str,
        typer.Option(
            "--broker-list",
            "--bootstrap-brokers",
            metavar="HOST:PORT",
            help="Bootstrap broker list: brokers of the design, separated by commas.",
        ),
    ] = LISTEN_DEFAULT,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Topic to read; repeatable."),
    ] = None,
    topic_pattern: Annotated[
        str | None,
        typer.Option(
            "--topic-pattern", metavar="REGEX", help="Read all topics that match, also new ones."
        ),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", metavar="N", min=1, max=1_000, help="Threads, each with its partitions."
        ),
    ] = 1,
    consumer_id: Annotated[
        str | None,
        typer.Option("--consumer-id", metavar="ID", help="Id, unique in the group."),
    ] = None,
    session_timeout_ms: Annotated[
        int, _setting("--session-timeout-ms", "Session timeout.")
    ] = _SESSION_MS,
    auto_commit: Annotated[
        bool, typer.Option("--auto-commit/--no-auto-commit", help="Report offsets in pings.")
    ] = True,
    auto_offset_reset: Annotated[
        OutOfRangeReset,
        typer.Option(
            "--auto-offset-reset", help="Start position without a valid committed offset."
        ),
    ] = OutOfRangeReset.SMALLEST,
    json: JsonOption = False,
) -> None:
    """Run a consumer, and print its records, one per line.

    Ctrl-C stops the fetchers, and waits for the ping that acknowledges the offsets. The records
    come from the brokers of --bootstrap-server.

    \b
    Examples:
      partage proposal broker-side consumer --group readers --topic flights --json
      partage proposal broker-side consumer --group readers --topic-pattern 'fli.*'
    """
    log_to_stderr(logging.INFO if cluster.verbose else logging.WARNING)
    if bool(topic) == (topic_pattern is not None):
        raise usage_error("give --topic or --topic-pattern, but not both")
    try:
        settings = PushConsumerSettings(
            bootstrap_brokers=_brokers(broker_list),
            group_id=group,
            consumer_id=consumer_id or _new_consumer_id(group),
            topic_count=(
                static_topic_count(topic or (), threads)
                if topic_pattern is None
                else pattern_topic_count(topic_pattern, threads)
            ),
            session_timeout_ms=session_timeout_ms,
            auto_commit=auto_commit,
            auto_offset_reset=auto_offset_reset.value,
        )
    except ValueError as error:
        raise usage_error(str(error)) from None
    options = consumer_options(cluster.properties)
    for name in _OWN_OPTIONS:
        options.pop(name, None)

    def on_change(partitions: frozenset[TopicPartition]) -> None:
        names = ", ".join(f"{each.topic}-{each.partition}" for each in sorted(partitions))
        note(f"{settings.consumer_id} reads {names or 'nothing'}")

    from partage.proposals.sockets.broker_side.foreground import run_consumer

    try:
        asyncio.run(
            run_consumer(
                settings, cluster.bootstrap_servers, options, record_printer(json), on_change
            )
        )
    except ForegroundError as error:
        raise CommandError(f"{error}{_advice(str(error), session_timeout_ms)}") from None
    except ClientError as error:
        raise usage_error(str(error)) from None
    except BrokenPipeError:
        discard_stdout()
        note("output closed by its reader")


def _advice(error: str, session_timeout_ms: int) -> str:
    if error.endswith(PushError.INVALID_SESSION_TIMEOUT.name):
        return (
            f"; --session-timeout-ms {session_timeout_ms} is below the coordinator's "
            "--session-timeout-min-ms"
        )
    return ""


def _new_consumer_id(group: str) -> str:
    """Return an id as those of Kafka 0.7: the group, the host and a random part."""
    return f"{group}_{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _brokers(text: str) -> tuple[BrokerAddress, ...]:
    """Parse --broker-list. The ids are unknown, so they are negative."""
    try:
        servers = parse_bootstrap_servers(text)
    except InvalidAddressError as error:
        raise usage_error(f"--broker-list: {error}") from None
    return tuple(
        BrokerAddress(id=-number, host=each.host, port=each.port)
        for number, each in enumerate(servers, 1)
    )
