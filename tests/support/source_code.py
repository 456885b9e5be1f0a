"""Reading the project's own code: a file as a syntax tree."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

__all__ = ["parsed"]


def parsed(source: Path | str) -> ast.Module:
    """The tree of a file, or of a text, built with nothing else running in between.

    Before Python 3.11.8 and 3.12.2 (gh-106905) all trees of a process are built with one depth counter. If garbage
    is collected meanwhile, and what is collected logs an exception, whose lines are parsed too, the outer tree ends
    with "SystemError: AST constructor recursion depth mismatch".
    """
    text = source if isinstance(source, str) else source.read_text(encoding="utf-8")
    was_on = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if was_on:
            gc.enable()
