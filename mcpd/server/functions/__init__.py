"""Python functions as callables with JSON arguments: signatures, schemas, coercion, dependencies and threads.

Start reading in `signature.py`, whose `bind` reads a function once and returns its `Callee`. `annotations`, `hints` and
`type_hooks` read types, `schema` and `plain_schema` describe them, `arguments` repairs or refuses arguments, `results`
converts values, `threads` runs plain functions, and `thread_steps` work that goes from thread to event loop and back.
Only `dependencies` knows requests (`Context`); tools, resources and prompts belong in `registry/`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from msgspec import Struct, field


class Source(Struct, frozen=True, eq=False):
    """How another process gets the functions that are being loaded: by a function `module:name` and its arguments.

    Each loading of a target has an object of its own. `counts` is for `processes`.
    """

    loader: str
    arguments: Mapping[str, Any]
    counts: Counter[str] = field(default_factory=Counter)


# The source of the target that is being loaded; None outside of `mcpd serve`.
source: ContextVar[Source | None] = ContextVar("source", default=None)
