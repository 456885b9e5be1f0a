"""MCP Apps as an extension of a server: who gets them, and what they add to tools and resources.

Loaded with every server, so all that only servers with apps need is imported when it is first used.
Spec: MCP Apps 2026-01-26, "Client<>Server Capability Negotiation".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NewType, Unpack, cast

from mcpd.errors import RegistrationError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.printable import printable
from mcpd.protocol.types.tools import CallToolResult
from mcpd.server.extensions.base import Extension, ExtensionHost, ResourceAddition, ToolAddition
from mcpd.server.extensions.ui.constants import MIME_TYPE, SCHEME, UI, AppsMode, has_ui, is_app_type

if TYPE_CHECKING:
    from mcpd.server.context.context import Context
    from mcpd.server.extensions.options import AppOptions
    from mcpd.server.extensions.ui.apps import Apps
    from mcpd.server.registry.entries import Problem, ResourceEntry
else:
    # For tools that evaluate annotations, such as `inspect.signature`: the real classes would slow every start.
    AppOptions, Context = NewType("AppOptions", dict), NewType("Context", object)

log = logging.getLogger("mcpd")


class AppsExtension(Extension):
    """MCP Apps as this server offers them.

    `auto` follows the client's offer, `always` serves hosts that render apps without offering it, `never` is off;
    so is everything when the environment says MCP_APPS_ENABLED=false. With `strict_model_list` tools that are for Views
    only are in no list, though clients with Apps can call them. Nothing is announced before the first tool or
    resource that has to do with apps.
    """

    capabilities = ("resources",)  # even while there are none: a host may give up if it cannot list them
    tool_options = ("ui", "ui_when", "view", "visibility")
    has_results = True
    wraps_values = True  # Apps hand results to Views, whose SDK takes nothing but objects

    def __init__(self, *, apps: AppsMode = "auto", strict_model_list: bool = False) -> None:
        super().__init__(UI, settings={"mimeTypes": [MIME_TYPE]})
        self.mode: AppsMode = "auto"
        self.strict_list = False
        self._apps: Apps | None = None
        self.configure({"apps": apps, "strict_model_list": strict_model_list})

    def serve_options(self) -> type:
        """Those of the constructor."""
        from mcpd.server.extensions.ui.server_options import AppsServerOptions  # few programs say one

        return AppsServerOptions

    def configure(self, options: Mapping[str, Any]) -> None:
        """Change who gets Apps (`apps`), and whether app-only tools are in no list (`strict_model_list`).

        None is no change. Raises ValueError.
        """
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
        """The Views of the server. From the first use on Apps are announced."""
        if self._apps is None:
            assert self.server is not None
            from mcpd.server.extensions.ui.apps import Apps

            self._apps = Apps(self.server, self)
            self.server.announce(self)
            self._apps.configured()
        return self._apps

    # -- what a server asks ------------------------------------------------------------------

    def bind(self, server: ExtensionHost) -> None:
        """The extension was added to a server."""
        self.server = server

    def admits(self, client: ClientIdentity) -> bool:
        """An offer without `mimeTypes` counts; one whose list lacks our type does not."""
        if self.mode != "auto":
            return self.mode == "always"
        offer = (client.capabilities.extensions or {}).get(UI)
        if not isinstance(offer, dict):
            return False
        types = offer.get("mimeTypes")
        return types is None or (isinstance(types, list) and any(map(is_app_type, types)))

    def tool(self, name: str, options: Mapping[str, Any], meta: dict[str, Any] | None) -> ToolAddition | None:
        """`ui=` or `view=`, `visibility=` and `ui_when=`, or raw `_meta` that speaks of Apps."""
        given = (options.get("ui"), options.get("visibility"), options.get("ui_when"))
        if options.get("view") is not None:
            from mcpd.server.extensions.ui.views.pages import view_tool

            return view_tool(self.apps, name, options["view"], given, meta)
        if given == (None, None, None) and not has_ui(meta):
            return None
        return self.apps.tool_ui(name, given, meta)

    def finish(self, result: CallToolResult, *, tool: str, is_active: bool, has_schema: bool) -> CallToolResult:
        """Text for everybody, data for a View only where there may be one."""
        from mcpd.server.extensions.ui.results import finished

        return finished(result, has_apps=is_active, has_schema=has_schema, name=tool)

    def resource(
        self, uri: str, mime_type: str | None, meta: dict[str, Any] | None, *, is_fixed: bool
    ) -> ResourceAddition | None:
        """What is under `ui://` is a View, and exists for clients with Apps only."""
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
        """Tools that link a View are listed otherwise once it comes or goes."""
        if self._apps is not None and uri.startswith(SCHEME):  # there may be very many others
            self._apps.changed(uri, is_removed=is_removed)

    def joined(self, other: Extension) -> None:
        """With Views of another server there are Views here."""
        if isinstance(other, AppsExtension) and other._apps is not None:
            self.apps  # noqa: B018 - announced by being asked for

    def joined_resource(self, entry: ResourceEntry, name_of: Callable[[str], str]) -> ResourceEntry:
        """A form calls its tool by the name that it has there."""
        from mcpd.server.extensions.ui.views.pages import BundledEntry  # few servers are joined

        return entry.calling(name_of(entry.of_tool)) if isinstance(entry, BundledEntry) and entry.of_tool else entry

    def problems(self) -> list[Problem]:
        """What a host would stumble over."""
        if self._apps is None:
            return []
        from mcpd.server.extensions.ui.checks import app_problems  # for `mcpd check` only

        return app_problems(self._apps)


HELP = {
    "": """\
For MCP Apps: `apps` says who gets them, clients that offer them (`auto`), all (`always`), none (`never`); with
`strict_model_list` tools that are for Views only are in no list, though clients with Apps can call them.""",
    "tool": """\
For clients with MCP Apps: `ui` is the View that shows the result, by its `ui://` URI or the name that
`app` was given; `view` is one that comes with mcpd instead, table, form, chart, markdown or image, or a `mcpd.View`
with options; `ui_when`, a function of a Context or of nothing, says for each request whether the tool
has it now, and works as text otherwise; `visibility=["app"]` keeps the tool from the model.
Spec: MCP Apps 2026-01-26, resource discovery.""",
    "resource": """\
Under `ui://` it is a View whose HTML the function makes, and only for clients with MCP Apps.""",
}
"""What the help of a server says beside its own, by the method; "" for the class."""


class AppsMethods:
    """A part of `Server`: no object of its own."""

    extensions: dict[str, Extension]

    @property
    def _apps(self) -> AppsExtension:
        return cast("AppsExtension", self.extensions[UI])

    def app(self, app: str, html: str | bytes | os.PathLike[str], **options: Unpack[AppOptions]) -> str:
        """Register the HTML of a View, or the file (a Path) that holds it, and give its URI, for the `ui=` of tools.

        `app` is a `ui://` URI, or a name: "chart" is `ui://<name of the server>/chart`. `csp` are the origins
        it needs, as {"connectDomains": ["https://api.example.com"]}; `permissions` any of camera, microphone,
        geolocation and clipboardWrite; `prefers_border` whether the host is to draw one; `domain` an origin of its
        own, in the format of one host. `name`, `title`, `description`, `icons` and `meta` are those of any resource.
        `replace` allows for a View with that URI, whose place this one takes.

        Clients get the URI with a hash of the content, so that none shows an older one; all forms are answered.
        Raises RegistrationError for what no host could show. Spec: MCP Apps 2026-01-26, UI resource format.
        """
        if isinstance(html, os.PathLike):
            html = _read(html, f"app {app!r}")
        elif isinstance(html, str) and html.endswith((".html", ".htm")) and "<" not in html:
            raise RegistrationError(f"app {app!r}: {html!r} is no HTML; for the file of that name give Path({html!r})")
        return self._apps.apps.add_html(app, html, options)

    def add_apps(self, folder: str, namespace: str | None = None, *, replace: bool = False) -> list[str]:
        """Register every `x.html` of a folder as `ui://<namespace>/x`, with `x.json` as its metadata; gives the URIs.

        `x.json` is like {"title": …, "ui": {"csp": …, "permissions": …, "prefersBorder": …}}. What cannot be used
        is logged and left out, and `mcpd check` names it; nothing is raised.
        """
        return self._apps.apps.add_folder(folder, namespace, replace=replace)

    def set_apps(self, mode: AppsMode | None = None, *, strict_model_list: bool | None = None) -> None:
        """Change who gets MCP Apps, and whether app-only tools are in no list; before serving. None is no change."""
        self._apps.configure({"apps": mode, "strict_model_list": strict_model_list})

    def has_apps(self, ctx: Context) -> bool:
        """Whether the client of this request gets MCP Apps, for tools that do more for a View."""
        return self._apps.is_active(ctx)


def _read(path: os.PathLike[str], where: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        text = f"{where}: {os.path.abspath(path)}: {error.strerror}; hosts start servers in other folders: give a path"
        raise RegistrationError(f'{text} like Path(__file__).with_name("{os.path.basename(path)}")') from None
