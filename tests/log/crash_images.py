"""Disk images after power failures, in any number: ``make images IMAGES=100000``.

Each scenario of `crash_scenarios` runs with a power failure before each of its operations. Half of
the resulting images see another failure during recovery. The seed decides which bytes survive.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from itertools import count
from random import Random, SystemRandom

from partage.lab.environment.disk import CrashDisk, PowerLossError

from .crash_scenarios import SCENARIOS, check_recovery, crashes
from .partition_host import Host

_AGAIN_MAX = 40  # approximate number of operations of a start


def crashes_again(host: Host, rng: Random) -> bool:
    """Fail during the start; return False if the start takes fewer operations."""
    assert isinstance(host.disk, CrashDisk)
    host.disk.crash_after = rng.randrange(_AGAIN_MAX)
    try:
        host.open()
    except PowerLossError:
        host.disk.crash(rng)
        return True
    finally:
        host.disk.crash_after = None
    return False


def main() -> int:
    """Run the scenarios; return 1 if an image was not recovered correctly."""
    parser = argparse.ArgumentParser(prog="python -m log.crash_images", description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**9))
    chosen = parser.parse_args()
    images, begin = 0, time.monotonic()
    for seed in count(chosen.seed):
        for name, story in SCENARIOS.items():
            for operation, (host, ended) in enumerate(crashes(story, seed)):
                rng = Random(f"{seed} {name} {operation}")
                images += 1
                try:
                    if rng.random() < 0.5:
                        images += crashes_again(host, rng)
                    check_recovery(name, host, ended)
                except Exception:  # any exception is a finding and is reported
                    traceback.print_exc()
                    print(f"{name}, seed {seed}, operation {operation}", file=sys.stderr)
                    return 1
        if images >= chosen.images:
            break
    took_s = time.monotonic() - begin
    print(f"{images:,} images in {took_s:,.0f} s, from seed {chosen.seed}: all recovered correctly")
    return 0


if __name__ == "__main__":
    sys.exit(main())
