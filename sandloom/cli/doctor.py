"""placeholder"""

from __future__ import annotations

COMMANDS = ()
