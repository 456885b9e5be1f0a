"""Notices when a target imports another library whose servers `mcpd.compat` runs, and only then loads that.

Small, since a host waits while it is loaded for servers of our own, which never need it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from mcpd.compat.program import Program

LIBRARIES = ("mcp", "mcp_types", "fastmcp")
"""The first part of the modules that are ours then: the keys of `compat.install.LIBRARIES`."""


class Watch:
    """Looks at imports while a target is loaded: `with Watch(program):`. With the first one of these libraries
    `mcpd.compat` finds all of them, for as long as the process lives, and `program` serves what calls `run()`."""

    def __init__(self, program: Program | None) -> None:
        self._program = program
        self.has_seen = False
        """Whether the target imports such a library."""
        self.when_seen: Callable[[], None] = lambda: None

    def __enter__(self) -> Watch:
        if self._program is not None:
            sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """What the import system asks; all but the first import of these libraries is for others to find."""
        if fullname.partition(".")[0] not in LIBRARIES:
            return None
        from mcpd.compat import program
        from mcpd.compat.install import finder, install

        if self._program is None or fullname.partition(".")[0] in sys.modules:
            return None
        self.has_seen = True
        self.when_seen()
        sys.meta_path.remove(self)
        install()
        program.take_over(self._program)
        return finder.find_spec(fullname, path, target)
