"""MCP Apps as an extension of a server.

It is loaded with every server, so modules that only servers with apps need are imported on first use.
Spec: MCP Apps 2026-01-26, "Client<>Server Capability Negotiation".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mcpd.errors import RegistrationError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Meta
from mcpd.protocol.types.features import CallToolResult
from mcpd.server.extensions.base import Extension, ExtensionHost, ResourceAddition, ToolAddition
from .constants import MIME_TYPE, SCHEME, UI, AppsMode, has_ui, is_app_type

if TYPE_CHECKING:
    from mcpd.server.registry.entries import Problem, ResourceEntry
    from .apps import Apps

log = logging.getLogger("mcpd")


class AppsExtension(Extension):
    """MCP Apps of a server.

    `apps` is "auto" for clients that offer MCP Apps, "always" also for hosts that render apps without offering them, or
    "never", like MCP_APPS_ENABLED=false in the environment. `strict_model_list` leaves tools that only Views may call
    out of `tools/list`, although clients with MCP Apps can call them. The extension is announced with the first tool or
    resource of an app.
    """

    capabilities = ("resources",)  # even without any: a host may fail if it cannot list them
    tool_options = ("ui", "ui_when", "view", "visibility")
    has_results = True
    wraps_values = True  # the SDK of Views accepts only objects

    def __init__(self, *, apps: AppsMode = "auto", strict_model_list: bool = False) -> None:
        super().__init__(UI, settings={"mimeTypes": [MIME_TYPE]})
        self.mode: AppsMode = "auto"
        self.strict_list = False
        self._apps: Apps | None = None
        self.configure({"apps": apps, "strict_model_list": strict_model_list})

    def serve_options(self) -> type:
        """Return the options of the constructor."""
        from mcpd.server.extensions.options import AppsServerOptions  # few programs say one

        return AppsServerOptions

    def configure(self, options: Mapping[str, Any]) -> None:
        """Change `apps` and `strict_model_list`; None leaves an option unchanged. Raises ValueError."""
        mode, strict_list = options.get("apps"), options.get("strict_model_list")
        if mode is not None:
            if mode not in ("auto", "always", "never"):
                raise ValueError(f"apps must be auto, always or never, not {mode!r}")
            enabled = os.environ.get("MCP_APPS_ENABLED", "").strip().lower()
            if enabled not in ("", "true", "false"):
                log.warning(
                    "MCP_APPS_ENABLED=%s changes nothing; to turn MCP Apps off, set it to false", printable(enabled)
                )
            self.mode = "never" if enabled == "false" else mode

        if strict_list is not None:
            self.strict_list = strict_list
        if self._apps is not None:
            self._apps.configured()

    @property
    def apps(self) -> Apps:
        """The Views of the server. The first use announces the extension."""
        if self._apps is None:
            assert self.server is not None
            from .apps import Apps

            self._apps = Apps(self.server, self)
            self.server.announce(self)
            self._apps.configured()
        return self._apps

    # -- for the server ----------------------------------------------------------------------

    def bind(self, server: ExtensionHost) -> None:
        """Add the extension to a server, without announcing it."""
        self.server = server

    def admits(self, client: ClientIdentity) -> bool:
        """Whether a client gets MCP Apps. Its offer counts without `mimeTypes`, but not with other types only."""
        if self.mode != "auto":
            return self.mode == "always"
        offer = (client.capabilities.extensions or {}).get(UI)
        if not isinstance(offer, dict):
            return False
        types = offer.get("mimeTypes")
        return types is None or (isinstance(types, list) and any(map(is_app_type, types)))

    def tool(self, name: str, options: Mapping[str, Any], meta: Meta) -> ToolAddition | None:
        """Handle `ui=` or `view=`, `visibility=` and `ui_when=`, or `_meta` of MCP Apps."""
        settings = (options.get("ui"), options.get("visibility"), options.get("ui_when"))
        if options.get("view") is not None:
            from .pages import view_tool

            return view_tool(self.apps, name, options["view"], settings, meta)
        if settings == (None, None, None) and not has_ui(meta):
            return None
        return self.apps.tool_ui(name, settings, meta)

    def finish(self, result: CallToolResult, *, tool: str, is_active: bool, has_schema: bool) -> CallToolResult:
        """Return a result with text for every client, and data for Views only for clients with MCP Apps."""
        from .results import finished

        return finished(result, has_apps=is_active, has_schema=has_schema, name=tool)

    def resource(self, uri: str, mime_type: str | None, meta: Meta, *, is_fixed: bool) -> ResourceAddition | None:
        """Make a resource with a `ui://` URI a View, which exists only for clients with MCP Apps."""
        if not uri.startswith(SCHEME):
            if is_app_type(mime_type):
                raise RegistrationError(
                    f"resource {uri!r} is {mime_type}: the URI of such a View begins with ui:// (APP-S-01)"
                )
            return None
        if is_fixed:
            raise RegistrationError(f"{uri!r}: the HTML of a View is registered with server.app()")
        return self.apps.dynamic(uri, mime_type, meta)

    def resource_changed(self, uri: str, *, is_removed: bool) -> None:
        """Announce that tools with this View have changed."""
        if self._apps is not None and uri.startswith(SCHEME):  # there may be many other resources
            self._apps.changed(uri, is_removed=is_removed)

    def joined(self, other: Extension) -> None:
        """Announce the extension if the other server has Views."""
        if isinstance(other, AppsExtension) and other._apps is not None:
            self.apps  # noqa: B018 - the first use announces it

    def joined_resource(self, entry: ResourceEntry, name_of: Callable[[str], str]) -> ResourceEntry:
        """Return a form that calls its tool by the name on the joined server."""
        from .pages import BundledEntry  # few servers are joined

        return entry.calling(name_of(entry.of_tool)) if isinstance(entry, BundledEntry) and entry.of_tool else entry

    def problems(self) -> list[Problem]:
        """Return problems that hosts would have with the apps."""
        if self._apps is None:
            return []
        from .checks import app_problems  # for `mcpd check` only

        return app_problems(self._apps)
