"""``partage`` with a bug planted in it, in this process and in those that run worlds for it.

cd tests && python -m lab.run_mutant "a zombie delivers" lab run --seeds 10
"""

from __future__ import annotations

import os
import sys

from .mutants import MUTANTS
from .mutation import install_mutant

#: Tells the processes of ``--jobs``, which begin by importing this module under another name.
_BUG = "PARTAGE_PLANTED"


def _parse_mutant_name() -> str:
    names = [mutant.name for mutant in MUTANTS]
    if len(sys.argv) < 3:
        sys.exit(
            "usage: python -m lab.run_mutant MUTANT lab run|story|shrink ..., "
            'for example MUTANT = "a zombie delivers"'
        )
    name = sys.argv.pop(1)
    if name not in names:
        sys.exit("\n  ".join([f"there is no bug {name!r}; there are", *names]))
    if "--spark" in sys.argv:
        sys.exit("the processes of Spark would not have the bug: leave out --spark")
    return name


if __name__ == "__mp_main__":
    install_mutant(os.environ[_BUG])

if __name__ == "__main__":
    os.environ[_BUG] = _parse_mutant_name()
    install_mutant(os.environ[_BUG])
    from partage.console import main

    main()
