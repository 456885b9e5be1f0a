"""What MCP Apps add to `Server` for authors: the methods that register Views and say who gets them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NewType, Unpack, cast

from mcpd.errors import RegistrationError
from mcpd.extensions.base import Extension
from mcpd.extensions.ui.constants import UI, AppsMode

if TYPE_CHECKING:
    from mcpd.extensions.ui.apps import AppOptions
    from mcpd.extensions.ui.extension import AppsExtension
    from mcpd.server.context.context import Context
else:
    # For whoever evaluates annotations (`inspect.signature`): the real ones would cost every start-up.
    AppOptions, Context = NewType("AppOptions", dict), NewType("Context", object)

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
