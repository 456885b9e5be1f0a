"""asyncio and msgspec, loaded without what they import and a server on stdio mostly never uses: a fifth of its time to
the first answer, and 5 MiB of memory, of which TLS is most.

In place of each such module they find a stand-in that asks the real one for every name, each time, and so loads it
when it is first used. It is in `sys.modules` no longer than these two are loaded: whoever else imports such a module,
then or from then on, has the real one, under the import lock as ever. `importlib.util.LazyLoader` would leave it
there, and in Python 3.11 two threads that use it at once load it twice. A name that is asked for while asyncio is
loaded loads the module too: with a Python that needs another one, this is slower and nothing else.

Done by the command only, whose process it is; a program that imports `mcpd` has its modules as Python gives them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

__all__ = ["load_libraries"]


class _StandIn(ModuleType):
    """Has the names that are given to it, and all others of the module of its name."""

    def __init__(self, name: str, known: Mapping[str, object]) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> object:
        # `from … import` asks that first, to see whether it is a package.
        if name == "__path__":
            raise AttributeError(name)
        self.leave()
        return getattr(import_module(self.__name__), name)

    def leave(self) -> None:
        """Make way for the real module."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


def load_libraries() -> None:
    """Load asyncio and msgspec. What is loaded already stays as it is."""
    stand_ins = [_StandIn(name, known) for name, known in _not_needed() if name not in sys.modules]
    sys.modules.update({each.__name__: each for each in stand_ins})
    try:
        import asyncio

        import msgspec  # noqa: F401
    finally:
        for each in stand_ins:
            each.leave()
    for each in stand_ins:
        package, _, name = each.__name__.rpartition(".")
        if package and not hasattr(asyncio, name):
            setattr(asyncio, name, each)  # as with any module of a package that was imported


def _not_needed() -> list[tuple[str, Mapping[str, object]]]:
    """Modules that can wait, with the names of each that are wanted at once.

    None that tracebacks are made of: one has to be told, too, where no descriptor is left to load a module with.
    """
    import typing

    found: list[tuple[str, Mapping[str, object]]] = [
        ("array", {}),
        ("asyncio.staggered", {}),
        ("asyncio.trsock", {}),
        ("subprocess", {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3}),
        (
            "typing_extensions",
            {"Required": typing.Required, "NotRequired": typing.NotRequired, "get_type_hints": _get_type_hints},
        ),
    ]
    if find_spec("_ssl") is not None:  # a Python without it has a loop that asks for None
        found += [("ssl", {}), ("asyncio.sslproto", {})]
    if sys.platform == "linux":
        found.append(("platform", {"system": lambda: os.uname().sysname}))
    return found


def _get_type_hints(*arguments: object, **options: object) -> object:
    """That of typing_extensions, for msgspec: it may not be installed where typing's is the same."""
    try:
        from typing_extensions import get_type_hints
    except ImportError:
        from typing import get_type_hints
    return get_type_hints(*arguments, **options)  # type: ignore[arg-type]
