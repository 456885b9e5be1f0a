"""The names of `mcp.types`, as pydantic models of our own.

A module for each chapter of the specification, loaded when the first name of it is asked for: `types.asking.Root` loads
the chapter that a host would else have to wait for. The modules do without `from __future__ import annotations`, as
pydantic would compile the text of each annotation.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["asking", "messages"]

if TYPE_CHECKING:
    from types import ModuleType

    from mcpd.compat.types import asking as asking, messages as messages
else:

    def __getattr__(name: str) -> ModuleType:
        if name in ("asking", "messages"):
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
