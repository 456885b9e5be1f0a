"""Loads asyncio and msgspec without modules that they import and a server on stdio hardly uses. That saves a fifth of
the time to the first answer, and 5 MiB of memory, most of it TLS.

In place of each such module they find a stand-in. The first time that somebody asks it for a name, or sets one, it
loads the real module, which is from then on where the stand-in was. It is in `sys.modules` no longer than these two are
loaded: whoever else imports such a module, then or from then on, has the real one, under the import lock as ever.
`importlib.util.LazyLoader` would leave it there, and in Python 3.11 two threads that use it at once load it twice. A
name that is asked for while asyncio is loaded loads the module too: with a Python that needs another one, this is
slower and nothing else. What differs from plain Python: `asyncio.sslproto` and `asyncio.staggered` cannot be reloaded
before they were used.

Done by `mcpd serve --stdio` only, whose process it is: a program that imports `mcpd` has its modules as Python gives
them, and a server on sockets uses most of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType

__all__ = ["load_libraries"]

_WITH_THEM = frozenset({"base64", "binascii", "fcntl", "locale", "struct"})
"""What only the modules that can wait would import, at the start too."""


class _StandIn(ModuleType):
    """Has the names that are given to it, and all others of the module of its name."""

    def __init__(self, name: str, known: Mapping[str, object]) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> object:
        # `from … import` asks that first, to see whether it is a package.
        if name == "__path__":
            raise AttributeError(name)
        try:
            real = self.make_way()
        except (ImportError, OSError) as error:
            if (self.__name__, name) != ("ssl", "SSLSocket"):
                raise
            # asyncio asks of each socket whether it is one of these: none is, as long as the module is not loaded.
            if isinstance(error, ImportError):  # a Python whose TLS cannot be loaded, where asyncio has None for it
                self._replace_by(None)
            return ()  # else no descriptor was left to load it with: the next time it may be
        return getattr(real, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.make_way(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.make_way(), name)

    def __dir__(self) -> list[str]:
        return dir(self.make_way())

    def make_way(self) -> ModuleType:
        """The real module, which is from now on where this was."""
        self.leave()
        real = import_module(self.__name__)
        self._replace_by(real)
        return real

    def leave(self) -> None:
        """Let others import the real module."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def _replace_by(self, other: ModuleType | None) -> None:
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", {})
            for name in [name for name, value in list(names.items()) if value is self]:
                names[name] = other


class _FoundAsAtTheStart:
    """Finds modules where they would have been found at the start: of the folders that come into `sys.path` later,
    which are those of targets, each may have a file of such a name."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._path = list(sys.path)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name not in self._names or name in sys.builtin_module_names:
            return None
        return PathFinder.find_spec(name, self._path if path is None else path)  # else it is in a package


def load_libraries() -> None:
    """Load asyncio and msgspec. What is loaded already stays as it is."""
    stand_ins = [_StandIn(name, known) for name, known in _not_needed() if name not in sys.modules]
    if not stand_ins:
        return
    sys.modules.update({each.__name__: each for each in stand_ins})
    sys.meta_path.insert(0, _FoundAsAtTheStart(_WITH_THEM.union(each.__name__ for each in stand_ins)))
    try:
        import asyncio

        import msgspec  # noqa: F401
    finally:
        for each in stand_ins:
            each.leave()
    for each in stand_ins:
        # As with any module of a package that was imported; they are all asyncio's.
        package, _, name = each.__name__.rpartition(".")
        if package and not hasattr(asyncio, name):
            setattr(asyncio, name, each)


def _not_needed() -> list[tuple[str, Mapping[str, object]]]:
    """Modules that can wait, with the names of each that are wanted at once.

    None that is needed where no descriptor is left to load it with: to tell of that (what tracebacks are made of), and
    to wait until there is one (asyncio.trsock, which asyncio wraps a listening socket in).
    """
    import typing

    found: list[tuple[str, Mapping[str, object]]] = [
        ("array", {}),
        ("asyncio.staggered", {}),
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
