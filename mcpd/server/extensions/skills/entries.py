"""The wire format of skills, and how the extension finds skills among the entries of a catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, cast

from mcpd.protocol.types.base import Wire
from mcpd.server.extensions.skills.constants import FILE, SCHEME, SKILLS
from mcpd.server.registry.entries import ResourceEntry

_NAME = r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\Z"


class SkillResource(Wire, kw_only=True):
    """A file of a skill. `digest` is `sha256:` and 64 hexadecimal digits; `size` is in bytes."""

    uri: str
    digest: str
    size: int


class Skill(Wire, kw_only=True):
    """One skill as clients see it: the URI of its SKILL.md, the front matter as JSON, and all of its files.

    `resources` is "dynamic" if the content is created when it is read.
    """

    uri: str
    frontmatter: dict[str, Any]
    resources: list[SkillResource] | Literal["dynamic"]


class SkillSource(Protocol):
    """Describes one skill. An entry with it in `extension_data[SKILLS]` is the resource of a SKILL.md."""

    def describe(self) -> Skill | None:
        """Return the current skill; None while it cannot be used. May read files; called in any thread."""


def skill_entries(entries: Iterable[ResourceEntry]) -> dict[str, ResourceEntry]:
    """Return the entries that are files of skills, sorted by URI."""
    found = {entry.key: entry for entry in entries if SKILLS in entry.extension_data}
    return dict(sorted(found.items()))


def source_of(entry: ResourceEntry) -> SkillSource | None:
    """Return the source of the skill whose SKILL.md this is; None for another file."""
    data: Mapping[str, Any] = entry.extension_data
    return cast("SkillSource | None", data.get(SKILLS))


def is_name(text: object) -> bool:
    """Whether a text can be the name of a skill: 1 to 64 lower-case letters, digits and single inner hyphens."""
    import re  # few servers have skills

    return isinstance(text, str) and re.match(_NAME, text) is not None


def root_uri(path: str) -> str:
    """Return the URI of the SKILL.md of the skill at an escaped path, such as `billing/refunds`."""
    return f"{SCHEME}{path}/{FILE}"
