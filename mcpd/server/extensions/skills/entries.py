"""What a skill is on the wire, and what the catalog's entries have to say for the extension to find skills in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, cast

from mcpd.protocol.types.base import Wire
from mcpd.server.extensions.skills.constants import FILE, SCHEME, SKILLS
from mcpd.server.registry.entries import ResourceEntry

_NAME = r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\Z"


class SkillResource(Wire, kw_only=True):
    """A file of a skill. `digest` is `sha256:` and 64 hexadecimal digits, of the same bytes that `size` counts."""

    uri: str
    digest: str
    size: int


class Skill(Wire, kw_only=True):
    """What clients learn of one skill: the URI of its SKILL.md, the head of that as JSON, and all of its files.

    `resources` is "dynamic" for one whose content is made when it is read.
    """

    uri: str
    frontmatter: dict[str, Any]
    resources: list[SkillResource] | Literal["dynamic"]


class SkillSource(Protocol):
    """What tells of one skill. An entry with it in `extension_data[SKILLS]` is the resource of a SKILL.md."""

    def describe(self) -> Skill | None:
        """The skill as it is now; None while it cannot be used. Any thread; may read files."""


def of_skills(entries: Iterable[ResourceEntry]) -> dict[str, ResourceEntry]:
    """The files of skills among these, by URI, in the order of that."""
    found = {entry.key: entry for entry in entries if SKILLS in entry.extension_data}
    return dict(sorted(found.items()))


def source_of(entry: ResourceEntry) -> SkillSource | None:
    """What tells of the skill whose SKILL.md this is; None if it is another file."""
    data: Mapping[str, Any] = entry.extension_data
    return cast("SkillSource | None", data.get(SKILLS))


def is_name(text: object) -> bool:
    """Whether this may be the name of a skill: 1 to 64 small letters, digits and single hyphens inside."""
    import re  # few servers have skills

    return isinstance(text, str) and re.match(_NAME, text) is not None


def root_uri(path: str) -> str:
    """The URI of the SKILL.md of the skill at a path, as `billing/refunds`, whose parts are escaped."""
    return f"{SCHEME}{path}/{FILE}"
