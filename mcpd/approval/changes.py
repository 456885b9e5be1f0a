"""What changed between two states of what a server offers, in words. Breaking is what fails calls that worked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from mcpd.approval.offerings import KINDS, Offerings
from mcpd.approval.schemas import Found, compare_schemas, shown

_NAMES = {"tools": "tool", "resources": "resource", "resourceTemplates": "resource template", "prompts": "prompt"}


class Change(Struct, frozen=True):
    """One change: `tool add: argument b is now required`."""

    where: str
    """What it is about, e.g. `tool add`."""
    text: str
    is_breaking: bool

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def compare(old: Offerings, new: Offerings) -> list[Change]:
    """All changes from one state to the other, those that break callers first. The order of entries is none."""
    found = [Change("server", text, is_breaking) for text, is_breaking in _members(old["server"], new["server"], ())]
    for kind, member in KINDS.items():
        before = {entry[member]: entry for entry in old.get(kind, ())}
        now = {entry[member]: entry for entry in new.get(kind, ())}
        for key in sorted(before.keys() | now.keys()):
            where = f"{_NAMES[kind]} {key}"
            if key not in now:
                found.append(Change(where, "removed", True))
            elif key not in before:
                found.append(Change(where, "added", False))
            else:
                found += [Change(where, *change) for change in _entry(kind, before[key], now[key])]
    return sorted(found, key=lambda change: not change.is_breaking)


def _entry(kind: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Found]:
    if kind == "tools":
        yield from compare_schemas(old.get("inputSchema", True), new.get("inputSchema", True), is_input=True)
        before, now = old.get("outputSchema"), new.get("outputSchema")
        if before is not None and now is None:
            yield "has no output schema any more", True
        elif before is None and now is not None:
            yield "has an output schema now", False
        elif before is not None:
            yield from compare_schemas(before, now, is_input=False)
    elif kind == "prompts":
        yield from _arguments(old.get("arguments") or [], new.get("arguments") or [])
    breaking = {"tools": ("execution",), "resources": ("mimeType",), "resourceTemplates": ("mimeType",)}.get(kind, ())
    yield from _members(old, new, breaking)


def _arguments(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[Found]:
    """Those of a prompt."""
    before, now = {one["name"]: one for one in old}, {one["name"]: one for one in new}
    for name in before:
        if name not in now:
            yield f"argument {name} is gone", True
    for name, argument in now.items():
        is_required = argument.get("required", False)
        if name not in before:
            yield f"argument {name} is new{' and required' if is_required else ''}", is_required
            continue
        if is_required != before[name].get("required", False):
            yield f"argument {name} is {'now' if is_required else 'no longer'} required", is_required
        if argument.get("description") != before[name].get("description"):
            yield f"the description of argument {name} changed", False


_COMPARED_ELSEWHERE = ("inputSchema", "outputSchema", "arguments")


def _members(old: dict[str, Any], new: dict[str, Any], breaking: tuple[str, ...]) -> Iterator[Found]:
    """All else that is said of an entry: short values with what they were, annotations and metadata by their keys."""
    for name in sorted((old.keys() | new.keys()) - set(_COMPARED_ELSEWHERE)):
        before, now = old.get(name), new.get(name)
        if before == now:
            continue
        if isinstance(before or {}, dict) and isinstance(now or {}, dict):
            yield from ((f"{name}.{text}", name in breaking) for text, _ in _members(before or {}, now or {}, breaking))
        elif isinstance(now, bool | int) or isinstance(before, bool | int) or name in (*breaking, "title", "name"):
            said = "is not said any more" if now is None else f"is {shown(now)} now"
            yield f"{name} {'' if before is None else f'was {shown(before)}, '}{said}", name in breaking
        else:
            how = "is gone" if now is None else "is new" if before is None else "changed"
            yield f"{name} {how}", name in breaking
