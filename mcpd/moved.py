"""Old import paths, which still work with a deprecation warning until version 0.3.

`import mcpd` installs the finder. `mcpd.types`, `mcpd.sync` and the other public modules have not moved.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

MOVED = {
    "mcpd.approval": "mcpd.testing.approval",
    "mcpd.auth_server": "mcpd.auth.server",
    "mcpd.backplane": "mcpd.server.backplane",
    "mcpd.bundle": "mcpd.cli.bundle",
    "mcpd.channel": "mcpd.protocol.channel",
    "mcpd.context": "mcpd.server.context",
    "mcpd.docs": "mcpd.sources.docs",
    "mcpd.doctor": "mcpd.cli.doctor",
    "mcpd.extensions": "mcpd.server.extensions",
    "mcpd.handlers": "mcpd.server.handlers",
    "mcpd.host": "mcpd.apps.host",
    "mcpd.host.call": "mcpd.apps.host.tool_call",
    "mcpd.host.conversation": "mcpd.apps.host.shown_view",
    "mcpd.host.hooks": "mcpd.apps.host.shown_view",
    "mcpd.host.options": "mcpd.apps.host.host",
    "mcpd.host.request_handler": "mcpd.apps.host.shown_view",
    "mcpd.host.shown": "mcpd.apps.host.shown_view",
    "mcpd.http": "mcpd.server.http",
    "mcpd.install": "mcpd.cli.install",
    "mcpd.jsonrpc": "mcpd.protocol.jsonrpc",
    "mcpd.listener": "mcpd.protocol.channel",
    "mcpd.observe": "mcpd.server.observe",
    "mcpd.observer": "mcpd.protocol.observer",
    "mcpd.preview": "mcpd.apps.preview",
    "mcpd.principal": "mcpd.protocol.principal",
    "mcpd.pytest_plugin": "mcpd.testing.pytest_plugin",
    "mcpd.registry": "mcpd.server.registry",
    "mcpd.registry.routes": "mcpd.transports.routes",
    "mcpd.registry.signature": "mcpd.server.functions.signature",
    "mcpd.serve_options": "mcpd.server.settings",
    "mcpd.sources.starter": "mcpd.sources.demo",
    "mcpd.trace": "mcpd.cli.trace",
    "mcpd.trace.channel": "mcpd.client.channels",
    "mcpd.trace.files": "mcpd.transports.recorder",
    "mcpd.trace.recorder": "mcpd.transports.recorder",
    "mcpd.transports.websocket_server": "mcpd.transports.websocket.server",
    "mcpd.verdict": "mcpd.apps.verdict",
    "mcpd.verdict.options": "mcpd.apps.verdict.report",
    "mcpd.workers": "mcpd.cli.workers",
}
"""Old name -> new name of a module, or of a package with everything in it."""


def moved(name: str) -> str | None:
    """Return the new name of a module; None if it has not moved."""
    head, tail = name, ""
    while head.count("."):
        if head in MOVED:
            return MOVED[head] + tail
        head, _, last = head.rpartition(".")
        tail = f".{last}{tail}"
    return None


class _Alias:
    """A loader that puts the module of the new name into `sys.modules` under the old one."""

    def __init__(self, new: str) -> None:
        self._new = new

    def create_module(self, spec: ModuleSpec) -> None:
        return

    def exec_module(self, module: ModuleType) -> None:
        from importlib import import_module  # noqa: PLC0415

        sys.modules[module.__name__] = import_module(self._new)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        new = moved(name) if name.startswith("mcpd.") else None
        if new is None:
            return None

        from warnings import warn  # noqa: PLC0415

        warn(f"{name} is now {new}; the old name stops working in mcpd 0.3", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, _Alias(new))  # type: ignore[arg-type]  # importlib.abc is slow to import


def install() -> None:
    """Allow imports by the old names. The finder comes first, so that no module is loaded under two names."""
    sys.meta_path.insert(0, _Finder())
