"""Lines for the people who start a server: to stderr, or to the parent of a worker."""

from __future__ import annotations

import sys
from collections.abc import Callable


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_say: Callable[[str], object] = _write


def tell(line: str) -> None:
    """Say one line."""
    _say(line)


def tell_to(say: Callable[[str], object]) -> None:
    """From now on lines go there."""
    global _say
    _say = say
