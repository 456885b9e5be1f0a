"""The head of a SKILL.md: what the Agent Skills specification asks of it, each mistake with its line.

What it says goes to clients as JSON as it stands, whatever else is in it (SEP-2640, Frontmatter).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from mcpd.docs.front_matter import FrontMatterError, read_front_matter
from mcpd.extensions.skills.constants import MOST_TOTAL_BYTES
from mcpd.extensions.skills.entries import is_name
from mcpd.types.base import META

MOST_DESCRIPTION = 1024
"""How many characters the description of a skill may have."""

_MOST_COMPATIBILITY = 500


class SkillHead(Struct, frozen=True):
    """What the head of a SKILL.md says; `warnings` are what hosts may not like about it."""

    name: str
    description: str
    members: dict[str, Any]
    warnings: tuple[str, ...]


def read_head(data: bytes, folder: str) -> SkillHead:
    """The head of a SKILL.md that stands in a folder of that name. Raises FrontMatterError."""
    if len(data) > MOST_TOTAL_BYTES:
        raise FrontMatterError(1, f"is larger than {MOST_TOTAL_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FrontMatterError(line, f"is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    if text.startswith("\ufeff"):
        raise FrontMatterError(1, "begins with a byte order mark, before its head; save it as UTF-8 without one")
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        raise FrontMatterError(1, "has no head; begin it with ---, name:, description: and --- on lines of their own")
    members, _, _ = read_front_matter("\n".join(lines))

    name, description = members.get("name"), members.get("description")
    if name is None:
        raise FrontMatterError(1, f"its head has no name; write name: {folder}")
    if not is_name(name):
        what = "1 to 64 small letters, digits and single hyphens between them"
        raise FrontMatterError(_line(lines, "name"), f"{str(name)[:80]!r} is no name for a skill: use {what}")
    if name != folder:
        text = f"its name is {name}, and that of its folder {folder!r}; one of them has to be changed"
        raise FrontMatterError(_line(lines, "name"), text)
    if not isinstance(description, str) or not description.strip():
        line = _line(lines, "description")
        raise FrontMatterError(line, "its head has no description; say what it is for, and when to use it")
    if len(description) > MOST_DESCRIPTION:
        text = f"its description has {len(description)} characters; {MOST_DESCRIPTION} are allowed"
        raise FrontMatterError(_line(lines, "description"), text)
    return SkillHead(str(name), description, members, tuple(_warnings(members)))


def _warnings(members: dict[str, Any]) -> list[str]:
    found = []
    for key in ("license", "compatibility", "allowed-tools"):
        value = members.get(key)
        if value is not None and not isinstance(value, str):
            found.append(f"{key} in its head is to be a text")
    if len(str(members.get("compatibility") or "")) > _MOST_COMPATIBILITY:
        found.append(f"compatibility in its head has more than {_MOST_COMPATIBILITY} characters")

    metadata = members.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        found.append("metadata in its head is to be a table")
    for key in metadata if isinstance(metadata, dict) else ():
        if key.startswith(META):
            found.append(f"{key} in the metadata of its head is a key of the protocol's own; it has no meaning there")
    return found


def _line(lines: list[str], key: str) -> int:
    """The line on which a key of the head stands."""
    found = (at for at, line in enumerate(lines, 1) if line.strip("\"' ").startswith(key))
    return next(found, 1)
