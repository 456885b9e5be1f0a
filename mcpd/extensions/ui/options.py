"""What MCP Apps let authors say of tools and Views, for type checkers; of it errors say what there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from mcpd.extensions.ui.meta import Csp, Permissions
from mcpd.extensions.ui.tools import Visibility
from mcpd.extensions.ui.views.view import View, ViewKind
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
