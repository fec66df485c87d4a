"""Fuzz until interrupted, or for some seconds: ``make fuzz SECONDS=60``.

Each case has a number and depends only on the seed, the name of its target and that number. A
finding is printed with the command that repeats it. The report counts tries; a case has several.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from random import Random, SystemRandom

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fuzz.broker_requests import BrokerRequests
from fuzz.join_group_frames import JoinGroupFrames
from fuzz.push_frames import PushFrames
from fuzz.push_sockets import PushSockets
from fuzz.targets import Batches, Frames, Messages, Stored, Target

NAMES = (
    "messages",
    "batches",
    "stored",
    "push",
    "push-sockets",
    "join-group",
    "requests",
    "frames",
)
_SHOWN_EVERY_S = 0.5


def opened(name: str, stack: ExitStack) -> Target:
    """Open a target; its resources are released with the stack."""
    if name == "frames":
        return stack.enter_context(Frames.running())
    if name == "push-sockets":
        return stack.enter_context(PushSockets.running())
    if name == "requests":
        return stack.enter_context(BrokerRequests.running())
    targets: dict[str, Callable[[], Target]] = {
        "messages": Messages,
        "batches": Batches,
        "stored": Stored,
        "push": PushFrames,
        "join-group": JoinGroupFrames,
    }
    return targets[name]()


def dice(seed: int, name: str, number: int) -> Random:
    """Return the random generator of a case."""
    return Random(f"{seed} {name} {number}")


def _total(tried: dict[str, Counter[str]]) -> int:
    return sum(map(Counter.total, tried.values()))


def _table(tried: dict[str, Counter[str]]) -> Table:
    table = Table("target", "tries", "outcomes")
    for name, outcomes in tried.items():
        story = ", ".join(f"{what} {times:,}" for what, times in sorted(outcomes.items()))
        table.add_row(name, f"{outcomes.total():,}", story)
    return table


def main() -> int:
    """Run the fuzzer; return 1 after a finding."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**9))
    parser.add_argument("--target", choices=NAMES, help="run only this target")
    parser.add_argument(
        "--tries",
        type=float,
        default=float("inf"),
        help="stop after this many tries of all targets",
    )
    parser.add_argument("--case", type=int, help="run only the case with this number")
    chosen = parser.parse_args()
    names = [chosen.target] if chosen.target else NAMES
    numbers = count() if chosen.case is None else iter([chosen.case])
    console = Console()
    console.print(f"seed {chosen.seed}")
    tried: dict[str, Counter[str]] = {name: Counter() for name in names}
    begin = time.monotonic()
    until, show_at = begin + chosen.seconds, 0.0
    with ExitStack() as stack:
        targets = {name: opened(name, stack) for name in names}
        live = stack.enter_context(Live(_table(tried), console=console, auto_refresh=False))
        for number in numbers:
            for name, target in targets.items():
                try:
                    tried[name].update(target.try_one(dice(chosen.seed, name, number)))
                except KeyboardInterrupt:
                    return 0
                except BaseException:
                    live.update(_table(tried), refresh=True)
                    traceback.print_exc()
                    again = f"--seed {chosen.seed} --target {name} --case {number}"
                    print(f"finding; repeat it with: python -m fuzz {again}", file=sys.stderr)
                    return 1
            if time.monotonic() >= show_at:
                live.update(_table(tried), refresh=True)
                show_at = time.monotonic() + _SHOWN_EVERY_S
            if time.monotonic() >= until or _total(tried) >= chosen.tries:
                break
        live.update(_table(tried), refresh=True)
    tries, took_s = _total(tried), time.monotonic() - begin
    console.print(
        f"{tries:,} tries in {took_s:,.0f} s ({tries / took_s:,.0f} per second): no findings"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
