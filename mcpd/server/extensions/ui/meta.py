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
from mcpd.server.extensions.ui.csp_sources import SOURCE_KINDS, UiCsp, UiPermissions, read_csp, validate_csp
from mcpd.server.registry.entries import Problem

Csp: TypeAlias = UiCsp | Mapping[str, Iterable[str]]
"""{"connectDomains": ["https://api.example.com"], …}: connectDomains, resourceDomains, frameDomains, baseUriDomains."""

Permissions: TypeAlias = UiPermissions | Iterable[str] | Mapping[str, Any]
"""Any of camera, microphone, geolocation, clipboardWrite."""

Visibility: TypeAlias = Sequence[Literal["model", "app"]]
"""Who may call a tool."""

_AUDIENCES: Final = ("model", "app")
_PERMISSIONS: Final = ("camera", "microphone", "geolocation", "clipboardWrite")


class ViewMeta(Struct, kw_only=True):
    """`_meta.ui` of a UI resource. An empty `csp` differs from a missing one: hosts are stricter without it."""

    csp: UiCsp | None = None
    permissions: UiPermissions | None = None
    domain: str | None = None
    prefers_border: bool | None = None
    others: dict[str, Any] = {}
    """Members that this revision does not define."""
    problems: tuple[Problem, ...] = ()
    """Problems of members that were left out."""

    def meta(self) -> dict[str, Any] | None:
        """Return the `_meta` for lists and contents, None if it is empty."""
        ui = dict(self.others)
        if self.csp is not None:
            ui["csp"] = to_builtins(self.csp)
        if self.permissions is not None:
            ui["permissions"] = to_builtins(self.permissions)
        if self.domain is not None:
            ui["domain"] = self.domain
        if self.prefers_border is not None:
            ui["prefersBorder"] = self.prefers_border
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
    declared, warnings = _checked_csp(where, csp)
    if domain is not None and not _is_text(domain):
        raise RegistrationError(f"{where}, domain={domain!r}: write it as the host documents it, or leave it out")
    if prefers_border not in (None, True, False):
        raise RegistrationError(f"{where}, prefers_border={prefers_border!r}: use True or False")

    return ViewMeta(
        csp=declared,
        permissions=_checked_permissions(where, permissions),
        domain=domain,
        prefers_border=prefers_border,
        problems=warnings,
    )


def _checked_csp(where: str, csp: Csp | None) -> tuple[UiCsp | None, tuple[Problem, ...]]:
    if csp is None:
        return None, ()
    if not isinstance(csp, UiCsp):
        if not isinstance(csp, Mapping):
            raise RegistrationError(f"{where}, csp={csp!r}: use a dict with lists under {', '.join(SOURCE_KINDS)}")
        _refuse_unknown(where, "csp", csp, SOURCE_KINDS)
        for kind, sources in csp.items():
            if isinstance(sources, str) or not isinstance(sources, Iterable):
                raise RegistrationError(f"{where}, csp, {kind}: use a list of origins, such as [{sources!r}]")
        csp, found = read_csp({kind: list(sources) for kind, sources in csp.items()})
        assert csp is not None
        if found:
            raise RegistrationError(f"{where}, csp, {found[0].kind}: {found[0].source}: {found[0].reason}")

    granted, found = validate_csp(csp)
    for problem in found:
        if problem.dropped:
            raise RegistrationError(
                f"{where}, csp, {problem.kind}: {problem.source!r} {problem.reason}; hosts would drop it. "
                "Write origins as https://api.example.com or https://*.example.com:8443"
            )

    return granted, tuple(Problem(where, f"csp, {problem}", is_error=False) for problem in found)


def _checked_permissions(where: str, permissions: Permissions | None) -> UiPermissions | None:
    if permissions is None or isinstance(permissions, UiPermissions):
        return permissions
    if isinstance(permissions, str) or not isinstance(permissions, Iterable):
        raise RegistrationError(f"{where}, permissions={permissions!r}: use a list of {', '.join(_PERMISSIONS)}")
    _refuse_unknown(where, "permissions", permissions, _PERMISSIONS)
    if isinstance(permissions, Mapping):
        for name, value in permissions.items():
            if not isinstance(value, Mapping):
                raise RegistrationError(f"{where}, permissions, {name}={value!r}: use an object, such as {{}}")
        return _permissions({name: dict(value) for name, value in permissions.items()})
    return _permissions({name: {} for name in permissions})


def _permissions(asked: Mapping[str, dict[str, Any]]) -> UiPermissions:
    return UiPermissions(
        camera=asked.get("camera"),
        microphone=asked.get("microphone"),
        geolocation=asked.get("geolocation"),
        clipboard_write=asked.get("clipboardWrite"),
    )


def _refuse_unknown(where: str, member: str, names: Iterable[Any], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise RegistrationError(f"{where}, {member}: unknown {name!r}; use {', '.join(known)}")


# -- from data ---------------------------------------------------------------------------------


def read_view_meta(where: str, ui: object) -> ViewMeta:
    """Return the metadata for data, with problems for the members that were left out. Never raises."""
    if ui is None:
        return ViewMeta()
    if not isinstance(ui, Mapping):
        return ViewMeta(problems=(Problem(where, f"_meta.ui must be an object, not {_short(ui)}; it is left out"),))
    problems: list[Problem] = []

    def lost(member: str, value: object, expected: str) -> None:
        problems.append(Problem(where, f"{member}: expected {expected}, not {_short(value)}; it is left out"))

    csp, permissions, domain, border = (ui.get(name) for name in ("csp", "permissions", "domain", "prefersBorder"))
    if domain is not None and not _is_text(domain):
        lost("domain", domain, "a string")
        domain = None
    if border is not None and not isinstance(border, bool):
        lost("prefersBorder", border, "true or false")
        border = None
    asked = None
    if isinstance(permissions, Mapping):
        for name, value in permissions.items():
            if name not in _PERMISSIONS:
                lost("permissions", name, f"any of {', '.join(_PERMISSIONS)}")
            elif not isinstance(value, Mapping):
                lost(f"permissions, {name}", value, "an object, as in {}")
        good = {name: dict(value) for name, value in permissions.items() if isinstance(value, Mapping)}
        asked = _permissions(good)
    elif permissions is not None:
        lost("permissions", permissions, 'an object, as in {"camera": {}}')
    known = ("csp", "permissions", "domain", "prefersBorder")
    others = {name: value for name, value in ui.items() if name not in known}
    for name in others:
        problems.append(Problem(where, f"_meta.ui has no member {name!r}; it is passed on as it is", is_error=False))
    return ViewMeta(
        csp=_read_csp(where, csp, problems),
        permissions=asked,
        domain=domain,
        prefers_border=border,
        others=others,
        problems=tuple(problems),
    )


def _read_csp(where: str, value: object, problems: list[Problem]) -> UiCsp | None:
    csp, found = read_csp(value)
    if csp is not None:
        for kind in value if isinstance(value, Mapping) else ():
            if kind not in SOURCE_KINDS:
                text = f"csp has no {_short(kind)}, only {', '.join(SOURCE_KINDS)}; it is left out"
                problems.append(Problem(where, text))
        csp, more = validate_csp(csp)
        found += more
    problems += [Problem(where, f"csp, {problem}", is_error=problem.dropped) for problem in found]
    return csp


# -- who may see a tool ------------------------------------------------------------------------


def visibility_of(where: str, value: object) -> list[str] | None:
    """Return the visibility for an argument. Raises RegistrationError unless it is a list of "model" and "app"."""
    if value is None:
        return None
    names = list(value) if isinstance(value, (list, tuple, set, frozenset)) else []
    if not names or any(name not in _AUDIENCES for name in names):
        raise RegistrationError(f'{where}, visibility={value!r}: use a list of "model" and "app", at least one')
    return [name for name in _AUDIENCES if name in names]


def read_visibility(where: str, value: object) -> tuple[list[str] | None, tuple[Problem, ...]]:
    """Return the visibility for data. Unknown values are dropped; the default applies to an empty list (APP-S-13)."""
    if value is None:
        return None, ()
    names = value if isinstance(value, list) else [value]
    known = [name for name in _AUDIENCES if name in names]
    if isinstance(value, list) and known and all(name in _AUDIENCES for name in names):
        return known, ()
    used = f"using {known}" if known else "using the default, both"
    return known or None, (Problem(where, f'visibility {_short(value)} is not a list of "model" and "app"; {used}'),)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
