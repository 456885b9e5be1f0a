"""`_meta.ui` of UI resources and tools: origins, permissions and preferences of a View, and the visibility of a tool.

Invalid arguments of a program raise RegistrationError. Invalid members of data, from a JSON file or as raw `_meta`, are
left out with a `Problem` for each (APP-S-13, APP-S-18). Unknown members are passed on, for later revisions.
Spec: MCP Apps 2026-01-26, "UI Resource Format", "Resource Discovery".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, to_builtins

from mcpd.errors import RegistrationError
from mcpd.protocol.types.base import Meta
from mcpd.server.registry.entries import Problem
from .csp_sources import (
    PERMISSION_FIELDS,
    SOURCE_KINDS,
    UiCsp,
    UiPermissions,
    read_csp,
    shortened,
    validate_csp,
)

# {"connectDomains": ["https://api.example.com"], …}: connectDomains, resourceDomains, frameDomains, baseUriDomains.
Csp: TypeAlias = UiCsp | Mapping[str, Iterable[str]]

# Any of camera, microphone, geolocation, clipboardWrite.
Permissions: TypeAlias = UiPermissions | Iterable[str] | Mapping[str, Any]

# The callers that may use a tool.
Visibility: TypeAlias = Sequence[Literal["model", "app"]]

_AUDIENCES: Final = ("model", "app")
_MEMBERS: Final = ("csp", "permissions", "domain", "prefersBorder")


class ViewMeta(Struct, kw_only=True):
    """`_meta.ui` of a UI resource. An empty `csp` differs from a missing one: hosts are stricter without it."""

    csp: UiCsp | None = None
    permissions: UiPermissions | None = None
    domain: str | None = None
    prefers_border: bool | None = None
    # Members that this revision does not define.
    others: dict[str, Any] = {}
    # Problems of members that were left out.
    problems: tuple[Problem, ...] = ()

    def meta(self) -> Meta:
        """Return the `_meta` for lists and contents, None if it is empty."""
        members = zip(_MEMBERS, (self.csp, self.permissions, self.domain, self.prefers_border), strict=True)
        ui = {**self.others, **{name: to_builtins(value) for name, value in members if value is not None}}
        return {"ui": ui} if ui else None


def view_meta(
    where: str,
    *,
    csp: Csp | None = None,
    permissions: Permissions | None = None,
    domain: str | None = None,
    prefers_border: bool | None = None,
) -> ViewMeta:
    """Return the metadata for arguments of a program. Raises RegistrationError for the first invalid one."""
    ui = {"csp": csp, "permissions": permissions, "domain": domain, "prefersBorder": prefers_border}
    if isinstance(csp, UiCsp):
        ui["csp"] = to_builtins(csp)
    elif isinstance(csp, Mapping):
        ui["csp"] = {kind: _as_list(sources) for kind, sources in csp.items()}
    if isinstance(permissions, UiPermissions):
        ui["permissions"] = to_builtins(permissions)
    elif isinstance(names := _as_list(permissions), list):
        ui["permissions"] = {name: {} for name in names}

    meta = read_view_meta(where, {name: value for name, value in ui.items() if value is not None})
    _refuse(meta.problems)
    return meta


def _as_list(values: Any) -> Any:
    is_list = isinstance(values, Iterable) and not isinstance(values, (str, Mapping))
    return list(values) if is_list else values


def _refuse(problems: Iterable[Problem]) -> None:
    for problem in problems:
        if problem.is_error:
            raise RegistrationError(str(problem))


def read_view_meta(where: str, ui: object) -> ViewMeta:
    """Return the metadata for data, with problems for the members that were left out. Never raises."""
    if ui is None:
        return ViewMeta()
    if not isinstance(ui, Mapping):
        return ViewMeta(problems=(Problem(where, f"_meta.ui must be an object, not {shortened(repr(ui))}"),))
    problems: list[Problem] = []

    def leave_out(member: str, value: object, expected: str) -> None:
        problems.append(Problem(where, f"{member}: expected {expected}, not {shortened(repr(value))}"))

    domain, border, permissions = ui.get("domain"), ui.get("prefersBorder"), ui.get("permissions")
    if domain is not None and not (isinstance(domain, str) and domain.strip()):
        leave_out("domain", domain, "a string, as the host documents it")
        domain = None
    if border is not None and not isinstance(border, bool):
        leave_out("prefersBorder", border, "true or false")
        border = None

    requested = None
    if isinstance(permissions, Mapping):
        for name, value in permissions.items():
            if name not in PERMISSION_FIELDS:
                leave_out("permissions", name, f"any of {', '.join(PERMISSION_FIELDS)}")
            elif not isinstance(value, Mapping):
                leave_out(f"permissions, {name}", value, "an object, as in {}")
        requested = UiPermissions(
            **{
                field: dict(permissions[name])
                for name, field in PERMISSION_FIELDS.items()
                if isinstance(permissions.get(name), Mapping)
            }
        )
    elif permissions is not None:
        leave_out("permissions", permissions, 'an object, as in {"camera": {}}')

    others = {name: value for name, value in ui.items() if name not in _MEMBERS}
    for name in others:
        problems.append(Problem(where, f"_meta.ui has no member {name!r}; it is passed on as it is", is_error=False))
    return ViewMeta(
        csp=_read_csp(where, ui.get("csp"), problems),
        permissions=requested,
        domain=domain,
        prefers_border=border,
        others=others,
        problems=tuple(problems),
    )


def _read_csp(where: str, value: object, problems: list[Problem]) -> UiCsp | None:
    csp, problems_of_csp = read_csp(value)
    if csp is not None:
        for kind in value if isinstance(value, Mapping) else ():
            if kind not in SOURCE_KINDS:
                problems.append(Problem(where, f"csp has no {shortened(repr(kind))}, only {', '.join(SOURCE_KINDS)}"))
        csp, more = validate_csp(csp)
        problems_of_csp += more
    problems += [Problem(where, f"csp, {problem}", is_error=problem.dropped) for problem in problems_of_csp]
    return csp


# -- who may see a tool ------------------------------------------------------------------------


def visibility_of(where: str, value: object) -> list[str] | None:
    """Return the visibility for an argument. Raises RegistrationError unless it is a list of "model" and "app"."""
    seen, problems = read_visibility(where, _as_list(value))
    _refuse(problems)
    return seen


def read_visibility(where: str, value: object) -> tuple[list[str] | None, tuple[Problem, ...]]:
    """Return the visibility for data. Unknown values are dropped; the default applies to an empty list (APP-S-13)."""
    if value is None:
        return None, ()
    names = value if isinstance(value, list) else [value]
    known = [name for name in _AUDIENCES if name in names]
    if isinstance(value, list) and known and all(name in _AUDIENCES for name in names):
        return known, ()
    text = f'visibility {shortened(repr(value))}: use a list of "model" and "app", at least one'
    return known or None, (Problem(where, text),)
