"""The part of MCP Apps in a tool: the View that shows its results, and its visibility.

Spec: MCP Apps 2026-01-26, "Resource Discovery"; APP-S-11 (nested and flat key), -12 (no csp on a tool), -13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from mcpd.errors import RegistrationError
from mcpd.server.extensions.ui.constants import FLAT_URI, UI, checked_uri, has_ui
from mcpd.server.extensions.ui.meta import read_visibility, visibility_of
from mcpd.server.registry.entries import Problem
from mcpd.server.registry.listing import ActiveExtensions

if TYPE_CHECKING:
    from mcpd.server.extensions.ui.views.view import View
    from mcpd.server.registry.rules import Condition

Visibility = Sequence[Literal["model", "app"]]


class ToolUi:
    """`_meta.ui` of one tool. `uri` is its View without the hash; `link` returns the URI to send, if the View
    exists."""

    def __init__(
        self,
        uri: str | None,
        visibility: list[str] | None,
        link: Callable[[str], str | None],
        condition: Condition | None = None,
    ) -> None:
        self.uri = uri
        self.visibility = visibility
        self.condition = condition
        self.others: dict[str, Any] = {}
        """Members that this revision does not define."""
        self.problems: list[Problem] = []
        self.view: View | None = None
        """The bundled page, if the tool uses one."""
        self._link = link

    @property
    def is_required(self) -> bool:
        """Whether the tool exists only for clients with MCP Apps."""
        return self.is_app_only

    @property
    def is_app_only(self) -> bool:
        """Whether the tool is hidden from the model."""
        return self.visibility is not None and "model" not in self.visibility

    def meta(self, active: ActiveExtensions) -> dict[str, Any]:
        """Return the `_meta` for clients with MCP Apps.

        Without a View, because its condition is false or it does not exist, the visibility still applies.
        """
        ui = dict(self.others)
        meta: dict[str, Any] = {"ui": ui}
        if self.uri is not None and (self.condition is None or self.condition.key in active):
            uri = self._link(self.uri)
            if uri is not None:
                ui["resourceUri"] = meta[FLAT_URI] = uri
        if self.visibility is not None:
            ui["visibility"] = self.visibility
        return meta if ui else {}


def tool_ui(
    name: str,
    given: tuple[str | None, Visibility | None, Callable[..., Any] | None],
    meta: dict[str, Any] | None,
    namespace: str,
    link: Callable[[str, str], str | None],
) -> ToolUi:
    """Return the part of MCP Apps for `ui=`, `visibility=` and `ui_when=`, or for members that it removes from `_meta`.

    Raises RegistrationError for an invalid URI, a `csp` on a tool, and both ways at once.
    """
    ui, visibility, when = given
    where = f"tool {name}"
    problems: list[Problem] = []
    others: dict[str, Any] = {}
    seen: list[str] | None

    uri: object = ui
    if meta is not None and has_ui(meta):
        if ui is not None or visibility is not None:
            raise RegistrationError(f"{where}: use ui= and visibility=, or _meta with them, but not both")
        uri, others = _pop_raw(where, meta, problems)
        seen, found = read_visibility(where, others.pop("visibility", None))
        problems += found
    else:
        seen = visibility_of(where, visibility)

    checked = None if uri is None else checked_uri(f"{where}, ui", uri, namespace)
    condition = None
    if when is not None:
        if checked is None:
            raise RegistrationError(f"{where}: ui_when= requires ui=")
        from mcpd.server.registry.rules import Condition  # few tools have one

        condition = Condition(f"{UI}#{name}", when, UI, f"{where}: its ui_when function")

    found_ui = ToolUi(checked, seen, partial(link, name), condition)
    found_ui.others = others
    found_ui.problems = problems
    return found_ui


def _pop_raw(where: str, meta: dict[str, Any], problems: list[Problem]) -> tuple[object, dict[str, Any]]:
    """Return the View's URI and the other members of `_meta.ui`. The nested key takes precedence over the flat one."""
    nested, flat = (meta.pop(key, None) for key in ("ui", FLAT_URI))
    if nested is not None and not isinstance(nested, Mapping):
        problems.append(Problem(where, "_meta.ui must be an object; it is left out"))
        nested = None

    others = dict(nested or {})
    for member in ("csp", "permissions"):
        if member in others:
            raise RegistrationError(
                f"{where}: {member} belongs to the UI resource, and hosts ignore it on a tool; give it to server.app()"
            )

    uri = others.pop("resourceUri", None)
    if uri is None:
        uri = flat
    elif flat is not None and flat != uri:
        problems.append(Problem(where, f"_meta.ui.resourceUri differs from {FLAT_URI}, and is used", is_error=False))

    for member in others.keys() - {"visibility"}:
        problems.append(Problem(where, f"_meta.ui of a tool has no {member!r}; it is passed on", is_error=False))
    return uri, others
