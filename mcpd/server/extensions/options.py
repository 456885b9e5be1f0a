"""What MCP Apps let authors say of tools and Views, for type checkers; of it errors say what there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from mcpd.server.extensions.ui.meta import Csp, Permissions
from mcpd.server.extensions.ui.server_options import AppsServerOptions
from mcpd.server.extensions.ui.tools import Visibility
from mcpd.server.extensions.ui.views.view import View, ViewKind
from mcpd.server.registry.options import Described


class AppToolOptions(TypedDict, total=False):
    """What a tool may say of its View."""

    ui: str | None
    """The View that shows the result, by its `ui://` URI or the name that `app` was given."""
    view: ViewKind | View | None
    """The bundled page that shows the result, in place of `ui`."""
    ui_when: Callable[..., Any] | None
    """A function of a Context or of nothing: whether the tool has its View for this request."""
    visibility: Visibility | None
    """["app"] keeps the tool from the model."""


class AppOptions(Described, total=False):
    """What a View may say beside its HTML."""

    csp: Csp | None
    permissions: Permissions | None
    domain: str | None
    prefers_border: bool | None
    replace: bool


class BuiltInServeOptions(AppsServerOptions, total=False):
    """What `Server.run(…)` takes for them."""


class BuiltInOptions(BuiltInServeOptions, total=False):
    """What `Server(…)` takes for them."""


class BuiltInToolOptions(AppToolOptions, total=False):
    """What `@server.tool(…)` takes for them."""
