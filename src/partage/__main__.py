"""Entry point of ``python -m partage``, equal to the command ``partage``."""

from __future__ import annotations

from partage.console import main

if __name__ == "__main__":
    main()
