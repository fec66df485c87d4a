"""``python -m partage``, the same as the command ``partage``."""

from __future__ import annotations

from partage.console import main

if __name__ == "__main__":
    main()
