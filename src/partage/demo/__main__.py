"""``python -m partage.demo``."""

from __future__ import annotations

from partage.demo.app import main

if __name__ == "__main__":
    main()
