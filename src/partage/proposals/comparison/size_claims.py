"""The claims about the size of groups and of their metadata.

A function ``measure_…`` runs the worlds of a claim. A function ``judge_…`` returns the verdict for
its figures, with the reason.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import resource
import string
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

import msgspec

from partage.proposals.comparison.cell import STEADY_MS, CellRun, Workload, run_cell
from partage.proposals.comparison.claim import (
    Claim,
    ClaimVerdict,
    Judgement,
    combine_holds,
    join_words,
)
from partage.proposals.comparison.claim_worlds import SETTINGS, member_names
from partage.proposals.comparison.socket_cell import SocketCell
from partage.proposals.designs.catalog import find_design
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.world import DesignWorld, WorldOptions

T = TypeVar("T")

_CONSUMERS: Final = 5_000
#: Files of the process besides the two ends of each connection.
_FURTHER_FILES: Final = 200
#: A process that needs more CPU than it gets uses at least this share of an idle core.
_BUSY_SHARE: Final = 0.9
#: A figure within this share of the stated one is near it: the document has one digit.
_TOLERANCE: Final = 0.1
#: Growth between linear (1) and quadratic (2) counts as the nearer one.
_QUADRATIC_MIN: Final = 1.5
#: Compression is effective if it leaves at most this share of the bytes.
_EFFECTIVE_MAX: Final = 0.5


# 5,000 consumers


class SocketLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a process with a coordinator and all its consumers, over real connections.

    Attributes:
        consumers: The number of consumers.
        is_stable: True if the group became stable.
        form_s: CPU time until the group was stable.
        form_share: The same for each second of this time, from 0 to 1.
        share: CPU time of a second of the stable group, from 0 to 1.
    """

    consumers: int
    is_stable: bool
    form_s: float
    form_share: float
    share: float


def judge_consumers_per_coordinator(share: float, sockets: SocketLoad | None) -> Judgement:
    """Return the verdict for one coordinator with 5,000 consumers.

    Args:
        share: The use of one core by the first design's state machine; above 1 if it lags.
        sockets: The load over real connections; None if it was not measured.
    """
    machine = f"The state machine of `broker-side` alone needs {share:.1%} of a core."
    if share >= 1:
        return Judgement(verdict=ClaimVerdict.REFUTED, reason=machine)
    if sockets is None:
        return Judgement(
            verdict=ClaimVerdict.DEPENDS,
            reason=f"{machine} Connections were not measured: this machine permits too few files.",
        )
    if not sockets.is_stable and sockets.form_share < _BUSY_SHARE:
        return Judgement(
            verdict=ClaimVerdict.DEPENDS,
            reason=(
                f"{machine} Over sockets the group did not become stable, but its process got only "
                f"{sockets.form_share:.0%} of a core: either it waited, or the machine was busy."
            ),
        )
    if not sockets.is_stable:
        return Judgement(
            verdict=ClaimVerdict.REFUTED,
            reason=f"{machine} Over sockets the group did not become stable.",
        )
    process = (
        f"With connections and frames, one process with the coordinator and all "
        f"{sockets.consumers:,} consumers needs {sockets.share:.1%}."
    )
    if sockets.share >= 1:
        further = "So it is open how much of this the coordinator needs."
        return Judgement(verdict=ClaimVerdict.DEPENDS, reason=f"{machine} {process} {further}")
    return Judgement(
        verdict=ClaimVerdict.REPRODUCED,
        reason=f"{machine} {process} The coordinator needs only a part of this.",
    )


def measure_socket_load(consumers: int, steady_s: float = STEADY_MS / 1000) -> SocketLoad | None:
    """Run one coordinator of the first design and its consumers over real connections.

    Args:
        consumers: The number of consumers.
        steady_s: How long to measure the stable group.

    Returns:
        None if the process cannot open enough files.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * consumers + _FURTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        return None
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return asyncio.run(_measure_sockets(consumers, steady_s))


async def _measure_sockets(consumers: int, steady_s: float) -> SocketLoad:
    # The first design has pings at a third of the session; heartbeats only set the time to settle.
    workload = Workload(
        design="broker-side", members=consumers, heartbeat_interval_ms=500, phases=()
    )
    async with SocketCell(workload, poll_s=0.5) as cell:
        formed, form_s, form_share = await _timed(cell.measure("form"))
        _, _, share = await _timed(asyncio.sleep(steady_s))
    return SocketLoad(
        consumers=consumers,
        is_stable=formed.is_stable,
        form_s=form_s,
        form_share=form_share,
        share=share,
    )


async def _timed(work: Awaitable[T]) -> tuple[T, float, float]:
    """Return a result, the CPU time of this process meanwhile in s, and its share of a core."""
    cpu_s, begin_s = time.process_time(), time.monotonic()
    result = await work
    used_s = time.process_time() - cpu_s
    return result, used_s, used_s / (time.monotonic() - begin_s)


def measure_consumers_per_coordinator(cpu_clock_ns: Callable[[], int]) -> Claim:
    """5,000 consumers on one coordinator."""
    figures, shares = [], {}
    for design in ("broker-side", "two-phase-cooperative"):
        run = CellRun(Workload(design=design, members=_CONSUMERS, phases=("steady",)), cpu_clock_ns)
        result = run.run()
        steady = result.phase("steady")
        shares[design] = steady.coordinator_cpu_ms / 1000 / steady.counted_s
        form_s = result.phase("form").coordinator_cpu_ms / 1000
        figures += [
            (f"{design}, state machine: share of a core when stable", f"{shares[design]:.1%}"),
            (f"{design}, state machine: CPU to form the group", f"{form_s:.2f} s"),
        ]
    sockets = measure_socket_load(_CONSUMERS)
    name = "broker-side over sockets, with all consumers"
    if sockets is None:
        figures.append((name, "not measured"))
    else:
        figures += [
            (f"{name}: share of a core when stable", f"{sockets.share:.1%}"),
            (f"{name}: CPU to form the group", f"{sockets.form_s:.2f} s"),
        ]
    judgement = judge_consumers_per_coordinator(shares["broker-side"], sockets)
    return Claim(
        title="5,000 consumers on one coordinator",
        statement=(
            "“… with a single coordinator we should support up to 5K consumers (the bottleneck "
            "should be the number of socket channels a single machine can have)”"
        ),
        setup=(
            "The figures of the state machines are those of the simulator, without connections and "
            "frames. Over sockets, the coordinator and all consumers share one process of this "
            "machine, and consumers read no records. docs/benchmarks.md has connections to the "
            "accepted design in another process."
        ),
        rule=(
            "Refuted if the state machine needs a whole core, or if the group does not form over "
            "sockets although the process uses a core. Reproduced if the process with all "
            "consumers needs less than one core when the group is stable. Otherwise it depends."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )


# The metadata of all members


def judge_metadata_for_all(sent_bytes: Mapping[str, int]) -> Judgement:
    """Return the verdict for the bytes of a rebalance if all members receive all metadata.

    Args:
        sent_bytes: The bytes of each measured rebalance, by its name.
    """
    near = {name: abs(sent / 1e9 - 1) <= _TOLERANCE for name, sent in sent_bytes.items()}
    texts = (f"{sent / 1e9:.2f} GB ({name})" for name, sent in sent_bytes.items())
    outside = [name for name, is_near in near.items() if not is_near]
    reason = f"A rebalance of `multi-assignor` takes {join_words(texts)}."
    if outside:
        reason += f" The stated figure is not within 10% of: {join_words(outside)}."
    return Judgement(verdict=combine_holds(near.values()), reason=reason)


def measure_metadata_for_all(cpu_clock_ns: Callable[[], int]) -> Claim:
    """100 members with 100 KB of metadata."""
    figures = []
    sent: dict[str, dict[str, int]] = {}
    for design in ("multi-assignor", "single-assignor", "two-phase-eager"):
        result = run_cell(Workload(design=design, members=100, metadata_kb=100, phases=("join",)))
        for phase, name in (("form", "a new group"), ("join", "a member joins")):
            size = result.phase(phase).bytes
            sent.setdefault(design, {})[name] = size
            figures.append((f"{design}, {name}: bytes", f"{size:,}"))
    judgement = judge_metadata_for_all(sent["multi-assignor"])
    ratio = sent["multi-assignor"]["a new group"] / sent["single-assignor"]["a new group"]
    return Claim(
        title="100 members with 100 KB of metadata cost 1 GB for each rebalance",
        statement=(
            "“… with a per-member metadata size of 100KB, in a group of 100 members, each join "
            "group response would contain 10MB of data, which means that the coordinator would "
            "have to transfer 1GB total on every rebalance.”"
        ),
        setup=(
            "Two rebalances: 100 members form a group, and a further member joins. The bytes are "
            "those of all messages until the group is stable. In the accepted design a new member "
            "joins twice (KIP-394), so its metadata is sent once more."
        ),
        rule="Reproduced if the bytes of both rebalances are within 10% of 1 GB.",
        figures=figures,
        verdict=judgement.verdict,
        explanation=(
            f"{judgement.reason} With a single assignor, a new group takes {ratio:.0f} times "
            "fewer bytes."
        ),
    )


# Growth


def growth_exponent(small: tuple[int, int], large: tuple[int, int]) -> float:
    """Return the exponent of the growth between two points.

    Args:
        small: Members and bytes of the smaller group.
        large: Members and bytes of the larger group.
    """
    return math.log(large[1] / small[1]) / math.log(large[0] / small[0])


def judge_growth(multi: Mapping[float, float], single: Mapping[float, float]) -> Judgement:
    """Return the verdict for the exponents of many assignors and of a single one.

    Args:
        multi: The exponents of many assignors, by the KB of metadata of each member.
        single: Those of a single assignor.
    """
    holds = {kb: multi[kb] >= _QUADRATIC_MIN > single[kb] for kb in multi}
    reason = " ".join(
        f"With {kb:g} KB of metadata, the exponent is {multi[kb]:.2f} if all members assign, and "
        f"{single[kb]:.2f} with a single assignor: the claim {'holds' if holds[kb] else 'fails'}."
        for kb in multi
    )
    return Judgement(verdict=combine_holds(holds.values()), reason=reason)


def measure_growth(cpu_clock_ns: Callable[[], int]) -> Claim:
    """Quadratic against linear growth."""
    figures = []
    last: dict[str, dict[float, float]] = {}
    for design in ("multi-assignor", "single-assignor", "two-phase-eager"):
        for metadata_kb in (0.0, 1.0, 10.0):
            points = [(n, _form_bytes(design, n, metadata_kb)) for n in (100, 200, 400)]
            exponents = [growth_exponent(*pair) for pair in itertools.pairwise(points)]
            last.setdefault(design, {})[metadata_kb] = exponents[-1]
            name = f"{design}, {metadata_kb:g} KB: exponents from 100 to 200 and to 400 members"
            figures.append((name, ", ".join(f"{each:.2f}" for each in exponents)))
    judgement = judge_growth(last["multi-assignor"], last["single-assignor"])
    return Claim(
        title="Quadratic against linear growth",
        statement=(
            "“… the total amount of data which the coordinator must forward in the join group "
            "responses increases quadratically with the size of the group.” “Since only one member "
            "has to receive all the metadata for the group, the message overhead "
            "scales linearly with the number of members in the group.”"
        ),
        setup=(
            "The bytes until a new group is stable. The response `Joined` of the single assignor "
            "lists the ids of all members for each member, besides the metadata. The accepted "
            "design has no such list."
        ),
        rule=(
            "Growth is quadratic from an exponent of 1.5 on, else linear; the exponent is that "
            "from 200 to 400 members. Reproduced if it is quadratic for many assignors and linear "
            "for a single one, with each size of the metadata."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )


def _form_bytes(design: str, members: int, metadata_kb: float) -> int:
    cell = Workload(design=design, members=members, metadata_kb=metadata_kb, phases=())
    return run_cell(cell).phases[0].bytes


# Compression


class CompressedShares(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes with compression, as shares of those without.

    Attributes:
        members: Each member compresses its metadata.
        group: The coordinator compresses the metadata of all members.
    """

    members: float
    group: float


def judge_compression(
    overlapping: Mapping[str, CompressedShares], disjoint: CompressedShares
) -> Judgement:
    """Return the verdict for compressed metadata.

    Args:
        overlapping: The shares for subscriptions that overlap, by the name of the overlap.
        disjoint: Those for subscriptions without a common topic.
    """
    holds = {name: each.group <= _EFFECTIVE_MAX for name, each in overlapping.items()}
    texts = [
        f"{name}: {each.group:.0%} of the bytes if the coordinator compresses, {each.members:.0%} "
        "if members do"
        for name, each in (*overlapping.items(), ("no common topic", disjoint))
    ]
    failing = [name for name, is_effective in holds.items() if not is_effective]
    reason = f"What remains, for {'; for '.join(texts)}."
    if failing:
        reason += f" Compression of the group is not effective for: {join_words(failing)}."
    return Judgement(verdict=combine_holds(holds.values()), reason=reason)


def measure_compression(cpu_clock_ns: Callable[[], int]) -> Claim:
    """Compressed metadata of members whose subscriptions overlap more or less."""
    members, count = 50, 200
    rng = Random("topics")
    topics = ["".join(rng.choices(string.ascii_lowercase, k=16)) for _ in range(count)]
    each = count // members
    subscriptions = {
        "identical subscriptions": [frozenset(topics)] * members,
        "a random half of the topics each": [
            frozenset(rng.sample(topics, count // 2)) for _ in range(members)
        ],
        "no common topic": [
            frozenset(topics[number * each : (number + 1) * each]) for number in range(members)
        ],
    }
    figures = []
    shares = {}
    for overlap, of_members in subscriptions.items():
        sent = {
            design: _subscribed_bytes(design, topics, of_members)
            for design in (
                "multi-assignor",
                "multi-assignor-compressed",
                "multi-assignor-compressed-group",
                "single-assignor",
            )
        }
        figures += [(f"{overlap}, {name}: bytes", f"{size:,}") for name, size in sent.items()]
        plain = sent["multi-assignor"]
        shares[overlap] = CompressedShares(
            members=sent["multi-assignor-compressed"] / plain,
            group=sent["multi-assignor-compressed-group"] / plain,
        )
    disjoint = shares.pop("no common topic")
    judgement = judge_compression(shares, disjoint)
    return Claim(
        title="Compressed metadata",
        statement=(
            "“For maximum compression, the protocol could be modified to support compression of "
            "the entire group metadata. Since most subscription sets in a group will probably have "
            "considerable overlap (even matching exactly in most cases), this should be very "
            "effective …”"
        ),
        setup=(
            f"{members} members and {count} topics form a group. The names of the topics have 16 "
            "random letters, so that a name alone compresses badly. zlib compresses with its "
            "default level."
        ),
        rule=(
            "The document has no figure; effective means at most half of the bytes. The overlap of "
            "members concerns the compression of the whole group. Reproduced if this is effective "
            "for both kinds of overlapping subscriptions. Compression by each member, and "
            "subscriptions without a common topic, are for comparison."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )


def _subscribed_bytes(
    design: str, topics: Sequence[str], subscriptions: Sequence[frozenset[str]]
) -> int:
    """Return the bytes until a group with these subscriptions is stable."""
    world = DesignWorld(
        find_design(design)(*SETTINGS), WorldOptions(topics=dict.fromkeys(topics, 1)), 1
    )
    for name, subscription in zip(member_names(len(subscriptions)), subscriptions, strict=True):
        world.start_member(MemberTemplate(name=name, topics=subscription))
    if not world.run_until_stable(60_000):
        raise AssertionError(f"a group of {design} did not become stable")
    return sum(world.traffic.bytes.values())
