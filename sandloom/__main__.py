"""``python -m sandloom``."""

from __future__ import annotations

from sandloom.cli import main

if __name__ == "__main__":
    main()
