"""Whether there is a terminal still: not every terminal says that it goes.

Where no signal comes, keys would be looked for in an empty terminal for ever, on a whole core.
"""

from __future__ import annotations

import sys
import termios

LOOK_S = 2.0
"""Seconds between two looks for the terminal."""


def at_terminal() -> bool:
    """Tell whether standard input is a terminal that is there."""
    try:
        termios.tcgetattr(sys.stdin.fileno())
    except (OSError, ValueError, termios.error):
        return False
    return True
