"""``partage broker`` that ends or stops itself once, between a decision and its markers.

Usage: python -m cluster.faulty_coordinator SIGNAL FLAG ...; it creates the file FLAG.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from partage.broker.transactions.marker_writer import MarkerOrder, MarkerWriter
from partage.console import main


def install_fault(number: signal.Signals, flag: Path) -> None:
    write = MarkerWriter.write

    def failing(self: MarkerWriter, order: MarkerOrder, begin: int = 0) -> None:
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), number)
        write(self, order, begin)

    MarkerWriter.write = failing  # type: ignore[method-assign]  # the fault that is ordered


if __name__ == "__main__":
    install_fault(signal.Signals(int(sys.argv[1])), Path(sys.argv[2]))
    sys.argv[1:] = sys.argv[3:]
    main()
