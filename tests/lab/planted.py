"""``partage`` with a bug planted in it, in this process: worlds are run with ``--jobs 1``.

cd tests && python -m lab.planted "a zombie delivers" lab run --seeds 10 --jobs 1
"""

from __future__ import annotations

import sys

from .planting import plant

if __name__ == "__main__":
    plant(sys.argv.pop(1))
    from partage.console import main

    main()
