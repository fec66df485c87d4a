"""The cells of a comparison: each design with each combination of parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from partage.proposals.comparison.cell import PHASES, Workload
from partage.proposals.designs.catalog import DESIGNS, find_design
from partage.proposals.join_group.settings import CoordinatorSettings

#: The parameters of a grid: fields of `Workload` that are numbers.
PARAMETERS: Final[Mapping[str, type]] = {
    "members": int,
    "partitions": int,
    "topics": int,
    "subscribed_topics": int,
    "metadata_kb": float,
    "joining": int,
    "kills": int,
    "paused": int,
    "churn": int,
    "slow_ms": int,
    "session_timeout_ms": int,
    "heartbeat_interval_ms": int,
    "metadata_refresh_ms": int,
    "seed": int,
}

#: The default grid of all designs takes less than five minutes on two cores.
DEFAULT_GRID: Final[Mapping[str, Sequence[float]]] = {
    "members": (10, 100, 1_000),
    "metadata_kb": (0, 10),
}

#: The phases that run over sockets. "slow" needs the simulated network.
SOCKET_PHASES: Final = tuple(each for each in PHASES if each != "slow")

#: The parameters of cells over sockets that their grid does not set: real time passes.
SOCKET_DEFAULTS: Final[Mapping[str, int]] = {
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 500,
    "metadata_refresh_ms": 2_000,
}

#: The seeds of each cell in a complete report, which has the medians.
REPORT_SEEDS: Final[Sequence[float]] = (1, 2, 3)

#: The grid of the designs in a complete report.
REPORT_GRID: Final[Mapping[str, Sequence[float]]] = {**DEFAULT_GRID, "seed": REPORT_SEEDS}

#: The grid of the variants in a complete report.
VARIANT_GRID: Final[Mapping[str, Sequence[float]]] = {
    "members": (100,),
    "metadata_kb": (10,),
    "seed": REPORT_SEEDS,
}

_MEMBERS_MAX: Final = 20_000
_PARTITIONS_MAX: Final = 200_000
#: All metadata of a group, in bytes. A simulated coordinator holds it a few times.
_METADATA_BYTES_MAX: Final = 1_000_000_000
#: The most bytes of the metadata of a member besides its user data, and of the name of a topic.
_MEMBER_BYTES: Final = 1_000
_TOPIC_BYTES: Final = 20


def parse_parameter(text: str) -> tuple[str, tuple[float, ...]]:
    """Parse one parameter of a grid, such as ``members=10,100``.

    Raises:
        ValueError: The parameter does not exist, or a value is not a number in its range.
    """
    name, separator, values = text.partition("=")
    kind = PARAMETERS.get(name)
    if not separator or kind is None:
        near = get_close_matches(name, PARAMETERS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(
            f"{text!r} is no parameter of a grid{hint} Use NAME=VALUE,VALUE with one of: "
            f"{', '.join(PARAMETERS)}"
        )
    try:
        numbers = tuple(kind(each) for each in values.split(","))
    except ValueError:
        raise ValueError(
            f"{text!r}: the values of {name} are not all of type {kind.__name__}"
        ) from None
    if any(each < 0 or not math.isfinite(each) for each in numbers):
        raise ValueError(f"{text!r}: the values of {name} must be finite and not negative")
    return name, numbers


def expand_grid(
    designs: Iterable[str], grid: Mapping[str, Sequence[float]], **fixed: Any
) -> list[Workload]:
    """Return the cells of a grid.

    Args:
        designs: Names of designs or variants; the designs of `DESIGNS` if it is empty.
        grid: The values of each parameter.
        fixed: Further fields of all cells.

    Raises:
        ValueError: A design does not exist, or a cell is impossible or too large.
    """
    names = list(designs) or list(DESIGNS)
    unknown = [each for each in fixed.get("phases", ()) if each not in PHASES]
    if unknown:
        raise ValueError(f"no phase {unknown[0]!r}. The phases are: {', '.join(PHASES)}")
    cells = []
    for values in itertools.product(*grid.values()):
        parameters: dict[str, Any] = dict(zip(grid, values, strict=True))
        for name in names:
            find_design(name)
            cell = Workload(design=name, **parameters, **fixed)
            validate_cell(cell)
            cells.append(cell)
    return cells


def validate_cell(cell: Workload) -> None:
    """Refuse a cell that cannot run.

    Raises:
        ValueError: The cell is impossible or too large.
    """
    if cell.members < 3:
        raise ValueError(f"members={cell.members}: the phases of a cell need at least 3 members")
    limits = CoordinatorSettings()
    least_ms, most_ms = limits.session_timeout_min_ms, limits.session_timeout_max_ms
    if not least_ms <= cell.session_timeout_ms <= most_ms:
        raise ValueError(
            f"session_timeout_ms={cell.session_timeout_ms} is not between {least_ms} and {most_ms},"
            " the limits of the coordinators"
        )
    if not 0 < cell.heartbeat_interval_ms <= cell.session_timeout_ms // 2:
        raise ValueError(
            f"heartbeat_interval_ms={cell.heartbeat_interval_ms} must be above 0 and at most half "
            f"of session_timeout_ms={cell.session_timeout_ms}"
        )
    if cell.metadata_refresh_ms < 1_000:
        raise ValueError(f"metadata_refresh_ms={cell.metadata_refresh_ms} is below 1000")
    _validate_disturbances(cell)
    _validate_subscriptions(cell)
    for name, value, limit in (
        ("members", cell.members, _MEMBERS_MAX),
        ("partitions", cell.partition_count, _PARTITIONS_MAX),
        ("bytes of metadata", int(cell.members * cell.metadata_kb * 1000), _METADATA_BYTES_MAX),
    ):
        if value > limit:
            raise ValueError(f"a cell has {value:,} {name}; the limit is {limit:,}")
    _validate_messages(cell)


def _validate_messages(cell: Workload) -> None:
    """Refuse a cell whose metadata or partitions do not fit into the messages of its design."""
    design = cell.create_design()
    topics = cell.subscribed_topics or cell.topics
    member_bytes = int(cell.metadata_kb * 1000) + _MEMBER_BYTES + _TOPIC_BYTES * topics
    # Members that were killed stay until their sessions end, and two phases start a member.
    group_members = cell.members + cell.joining + cell.kills + cell.churn + 2
    for metadata_bytes, most_bytes, owner in (
        (member_bytes, design.member_metadata_bytes_max, "a member"),
        (group_members * member_bytes, design.group_metadata_bytes_max, "a group"),
    ):
        if most_bytes is not None and metadata_bytes > most_bytes:
            raise ValueError(
                f"{owner} of {cell.design} would have up to {metadata_bytes:,} bytes of metadata; "
                f"its members accept {most_bytes:,}. Use less metadata or fewer members"
            )
    share_max = design.partitions_per_member_max
    # Two members may be away, and a phase adds a tenth of the partitions.
    most = cell.partition_count * 1.1 / max(1, cell.members - 2)
    if share_max is not None and most > share_max:
        raise ValueError(
            f"a member of {cell.design} would own up to {most:,.0f} partitions; its messages "
            f"have room for {share_max:,}. Use fewer partitions or more members"
        )


def _validate_disturbances(cell: Workload) -> None:
    for name, limit, reason in (
        ("kills", cell.members - 2, "all members but two"),
        ("paused", cell.members, "all members"),
        ("churn", cell.members, "all members"),
        ("slow_ms", cell.session_timeout_ms // 4, "a quarter of session_timeout_ms"),
    ):
        value = getattr(cell, name)
        if value > limit:
            raise ValueError(
                f"{name}={value} is too large for this cell; the limit is {limit}, {reason}"
            )


def _validate_subscriptions(cell: Workload) -> None:
    """Refuse a cell in which a topic may have no subscriber while members are away."""
    if not 1 <= cell.topics <= cell.partition_count:
        raise ValueError(
            f"topics={cell.topics} is not between 1 and the {cell.partition_count} partitions"
        )
    if cell.subscribed_topics in (0, cell.topics):
        return
    if cell.subscribed_topics > cell.topics:
        raise ValueError(f"subscribed_topics={cell.subscribed_topics} is above {cell.topics=}")
    if getattr(find_design(cell.design), "hashes_subscription", False):
        raise ValueError(f"the members of {cell.design} need the same topics; subscribe to all")
    subscribers = cell.members * cell.subscribed_topics // cell.topics
    away = 1 + cell.kills + cell.paused + cell.churn
    if subscribers <= away:
        raise ValueError(
            f"a topic has {subscribers} subscribers, of which {away} may be away at once. Use more "
            "members or subscribed_topics, or fewer topics"
        )


def cell_command(
    cell: Workload, *, seeds: Sequence[int] = (), is_over_sockets: bool = False
) -> str:
    """Return the command that runs one cell again.

    Args:
        cell: The cell.
        seeds: Its seeds, if it ran with several ones.
        is_over_sockets: True if it ran over sockets instead of in the simulator.
    """
    default = Workload(design=cell.design)
    if is_over_sockets:
        default = msgspec.structs.replace(default, phases=SOCKET_PHASES, **SOCKET_DEFAULTS)
    defaults = msgspec.structs.asdict(default)
    words = ["partage lab compare --design", cell.design, *(["--sockets"] * is_over_sockets)]
    words += [
        f"--grid {name}={_number(value)}"
        for name, value in msgspec.structs.asdict(cell).items()
        if name in PARAMETERS and value != defaults[name] and not (seeds and name == "seed")
    ]
    if seeds:
        words.append(f"--grid seed={','.join(map(str, seeds))}")
    if not is_over_sockets and not any(each.startswith("--grid") for each in words):
        # Without a grid, the command runs the default one, which has more cells.
        words.append(f"--grid members={cell.members}")
    if cell.phases != default.phases:
        words += [f"--phase {_quoted(each)}" for each in cell.phases or ("none",)]
    return " ".join(words)


def _number(value: float) -> str:
    """Return a number that `parse_parameter` reads exactly."""
    return repr(value).removesuffix(".0")


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word
