"""Run ``partage`` with a mutant installed, in this process and in its worker processes.

cd tests && python -m lab.run_mutant "a member delivers after its session expired" lab run --seeds
10
"""

from __future__ import annotations

import os
import sys

from .mutants import MUTANTS
from .mutation import install_mutant

#: Passes the mutant to worker processes, which import this module as ``__mp_main__``.
_BUG = "PARTAGE_PLANTED"


def _parse_mutant_name() -> str:
    names = [mutant.name for mutant in MUTANTS]
    if len(sys.argv) < 3:
        sys.exit(
            "usage: python -m lab.run_mutant MUTANT lab run|trace|shrink ..., "
            'for example MUTANT = "a member delivers after its session expired"'
        )
    name = sys.argv.pop(1)
    if name not in names:
        sys.exit("\n  ".join([f"unknown mutant {name!r}; mutants are", *names]))
    if "--spark" in sys.argv:
        sys.exit("Spark processes do not have the mutant: remove --spark")
    return name


if __name__ == "__mp_main__":
    install_mutant(os.environ[_BUG])

if __name__ == "__main__":
    os.environ[_BUG] = _parse_mutant_name()
    install_mutant(os.environ[_BUG])
    from partage.console import main

    main()
