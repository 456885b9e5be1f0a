"""Skills: each folder with a SKILL.md. Every file in it is a resource, and the skill lists the digests of all of them.

Only the front matter of SKILL.md is read at the start. Other files and their digests are read on request, so that the
digests always match the content that clients then read. Text is sent byte for byte, because the digest is computed from
the bytes of the file.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct

from mcpd.errors import RegistrationError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import META
from mcpd.protocol.types.features import ReadResourceResult, Resource
from mcpd.server import Server
from mcpd.server.extensions.skills import (
    FILE,
    MOST_FILES,
    MOST_TOTAL_BYTES,
    SKILLS,
    Skill,
    SkillResource,
    SkillsExtension,
    is_name,
    root_uri,
)
from mcpd.server.folder_files import read_within
from mcpd.server.registry.entries import ActiveExtensions, Entries, ResourceEntry
from .files import MAX_PER_KIND, File, Report, Stamp, escaped, files_of, matching, stamp_of
from .front_matter import FrontMatterError, decoded, read_front_matter
from .resources import FileResource, Origin, file_contents, media_type
from .tables import SKILL_PREFIX, SkillsTable

MAX_DESCRIPTION = 1024

_MAX_COMPATIBILITY = 500


class SkillHead(Struct, frozen=True):
    """The front matter of a SKILL.md; `warnings` lists fields that hosts may reject."""

    members: dict[str, Any]
    warnings: tuple[str, ...]


def read_head(data: bytes, folder: str) -> SkillHead:
    """Return the front matter of the SKILL.md in a folder with the name `folder`. Raises FrontMatterError."""
    text = decoded(data, MOST_TOTAL_BYTES)
    if text.startswith("\ufeff"):
        raise FrontMatterError(1, "begins with a byte order mark; save it as UTF-8 without one")
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        text = "has no front matter; begin the file with ---, name:, description: and --- on separate lines"
        raise FrontMatterError(1, text)
    members, _, _ = read_front_matter(text)

    name, description = members.get("name"), members.get("description")
    key, problem = "name", ""
    if name is None:
        problem = f"its front matter has no name; write name: {folder}"
    elif not is_name(name):
        problem = f"{str(name)[:80]!r} is not a valid skill name: use 1 to 64 lower-case letters and digits, with "
        problem += "single hyphens between them"
    elif name != folder:
        problem = f"its name {name} differs from the name of its folder, {folder!r}; change one of them"
    elif not isinstance(description, str) or not description.strip():
        key = "description"
        problem = "its front matter has no description; describe what the skill does and when to use it"
    elif len(description) > MAX_DESCRIPTION:
        key = "description"
        problem = f"its description has {len(description)} characters; {MAX_DESCRIPTION} are allowed"

    if problem:
        raise FrontMatterError(_line(lines, key), problem)
    return SkillHead(members, tuple(_warnings(members)))


def _warnings(members: dict[str, Any]) -> list[str]:
    found = []
    for key in ("license", "compatibility", "allowed-tools"):
        value = members.get(key)
        if value is not None and not isinstance(value, str):
            found.append(f"{key} in its front matter must be a string")
    if len(str(members.get("compatibility") or "")) > _MAX_COMPATIBILITY:
        found.append(f"compatibility in its front matter has more than {_MAX_COMPATIBILITY} characters")

    metadata = members.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        found.append("metadata in its front matter must be a mapping")
    for key in metadata if isinstance(metadata, dict) else ():
        if key.startswith(META):
            found.append(f"{key} in its metadata is reserved for the protocol and has no meaning there")

    return found


def _line(lines: list[str], key: str) -> int:
    # Return the line of a key in the front matter.
    found = (at for at, line in enumerate(lines, 1) if line.strip("\"' ").startswith(key))
    return next(found, 1)


log = logging.getLogger("mcpd")


class SkillFile(FileResource):
    def __init__(self, key: str, origin: Origin, title: str, skill: FolderSkill | None = None) -> None:
        """`skill` is given for its SKILL.md only."""
        super().__init__(key, origin)
        self._title = title
        self._skill = skill

    @property
    def extension_data(self) -> Mapping[str, Any]:
        return {SKILLS: self._skill}

    def listed(self, active: ActiveExtensions) -> Resource:
        file, kind = self.origin.file, self.origin.media_type
        if self._skill is not None:
            name, description = (self._skill.head.members[key] for key in ("name", "description"))
            return Resource(uri=self.key, name=name, description=description, mime_type=kind, size=file.size)
        name = printable(file.parts[-1], 300)
        return Resource(uri=self.key, name=name, title=self._title, mime_type=kind, size=file.size)

    def _read(self, uri: str) -> ReadResourceResult:
        # As text only if that preserves the bytes, because the digest is computed from them.
        data = self.origin.read(uri)
        try:
            text = data.decode() if b"\0" not in data else None
        except UnicodeDecodeError:
            text = None
        return file_contents(uri, data, text, self.origin.media_type)


class _Digest(Struct, frozen=True):
    stamp: Stamp | None
    digest: str
    size: int


class FolderSkill:
    """One skill. `files` are its entries, including SKILL.md."""

    def __init__(self, uri: str, folder: str, name: str, head: SkillHead, origin: Origin) -> None:
        """`folder` is the folder of all skills, `name` the name of this skill's folder, and `origin` its SKILL.md."""
        self.uri = uri
        self.head = head
        self.files: list[SkillFile] = []
        self._folder = folder
        self._name = name
        self._path = origin.file.path
        self._head_stamp: Stamp | None = origin.file.stamp
        self._digests: dict[str, _Digest] = {}
        self._problem = ""
        self._lock = threading.Lock()

    def describe(self) -> Skill | None:
        # Only changed files are read. None means that the skill is no longer valid.
        with self._lock:
            try:
                found = {file.key: digest for file in self.files if (digest := self._digest(file)) is not None}
                self._update_head(found)
            except (FrontMatterError, OSError) as error:
                line = f", line {error.line}" if isinstance(error, FrontMatterError) else ""
                self._log_problem(f"{self._path}{line}: {error}; it is no longer served")
                return None
            self._problem = ""
        resources = [SkillResource(uri=uri, digest=one.digest, size=one.size) for uri, one in found.items()]
        return Skill(uri=self.uri, frontmatter=self.head.members, resources=resources)

    def _digest(self, file: SkillFile) -> _Digest | None:
        # Return the digest of a file, or None if the file is gone or too large.
        path = file.origin.file.path
        stamp, known = stamp_of(path), self._digests.get(file.key)
        if known is not None and known.stamp == stamp:
            return known
        try:
            data = read_within(path, self._folder, MOST_TOTAL_BYTES + 1)
        except OSError:
            return None

        if len(data) > MOST_TOTAL_BYTES:
            return None
        found = self._digests[file.key] = _Digest(stamp, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
        return found

    def _update_head(self, found: Mapping[str, _Digest]) -> None:
        # Read the front matter again if SKILL.md has changed. Raises FrontMatterError or OSError.
        if self.uri not in found:
            raise FrontMatterError(1, "was deleted or cannot be read")
        if sum(one.size for one in found.values()) > MOST_TOTAL_BYTES:
            raise FrontMatterError(1, f"its files are larger than {MOST_TOTAL_BYTES} bytes in total")
        if found[self.uri].stamp != self._head_stamp:
            head = read_head(read_within(self._path, self._folder, MOST_TOTAL_BYTES + 1), self._name)
            self.head, self._head_stamp = head, found[self.uri].stamp

    def _log_problem(self, text: str) -> None:
        if text != self._problem:
            self._problem = text
            log.error("%s", printable(text, 2000))


def skills_of(folder: str, table: SkillsTable, report: Report) -> list[ResourceEntry]:
    # If a skill contains another skill, its files belong to both, but each is only one resource.
    is_excluded = matching(table.exclude)

    def is_root(path: str) -> bool:
        return path.rpartition("/")[2].lower() == FILE.lower() and not is_excluded(path)

    roots = files_of(folder, report, limit=MAX_PER_KIND, is_wanted=is_root)
    found: dict[str, SkillFile] = {}
    skills: list[FolderSkill] = []
    for root in roots:
        if root.parts[-1] != FILE:
            report.warning(root.path, f"is not a skill: its name is {root.parts[-1]}, not {FILE}")
            continue

        try:
            files = _files(root, is_excluded, report)
            skill = None if files is None else _skill(folder, root, table.prefix)
        except FrontMatterError as error:
            report.error(root.path, f"{error}; the skill is left out", error.line)
            continue
        except OSError as error:
            report.error(root.path, f"cannot be read ({error.strerror}); the skill is left out")
            continue
        if skill is not None and files is not None:
            skills.append(skill)
            _put(skill, files, found, folder, report)

    _report_other_folders(folder, roots, report)
    return list(found.values())


def offer_skills(server: Server) -> None:
    # A server that has no skills yet may get some later.
    cast("SkillsExtension", server.extensions[SKILLS]).offer()


def add_skills(server: Server, folder: str | os.PathLike[str], prefix: str | None = None) -> list[str]:
    """Serve each folder below `folder` that has a SKILL.md as a skill, and return the URIs of the SKILL.md files.

    `prefix`, such as `acme/billing`, comes before the paths: `skill://acme/billing/refunds/SKILL.md`. Skills that
    cannot be used are left out, logged, and named by `mcpd check`. Calling it again updates the skills. Raises
    RegistrationError if a URI is already used or the prefix is not valid.
    """
    if prefix is not None and re.match(SKILL_PREFIX, prefix) is None:
        raise RegistrationError(f"add_skills: prefix must be like acme/billing, not {prefix!r}")
    path = os.path.abspath(folder)
    report = Report(path)
    if not os.path.isdir(path):
        report.error(path, "is not a folder; name the folder that contains the folders of skills")
    entries = skills_of(path, SkillsTable(prefix=prefix), report) if os.path.isdir(path) else []
    report.log_problems(report.found)
    offer_skills(server)
    server.replace(f"skills {path}", Entries(resources=entries, problems=report.found))
    return [entry.key for entry in entries if entry.extension_data[SKILLS] is not None]


def _files(root: File, is_excluded: Callable[[str], bool], report: Report) -> list[File] | None:
    # Return the files of a skill, SKILL.md first, or None if they are too many or too large.
    above = root.parts[:-1]
    own = Report(report.root)
    found = files_of(
        os.path.dirname(root.path),
        own,
        limit=MOST_FILES + 1,
        is_wanted=lambda path: not is_excluded("/".join((*above, path))),
    )
    if len(found) > MOST_FILES:
        report.error(root.path, f"the skill has more than {MOST_FILES} files, which hosts may refuse; it is left out")
        return None

    if sum(file.size for file in found) > MOST_TOTAL_BYTES:
        text = f"its files are larger than {MOST_TOTAL_BYTES} bytes in total, which hosts may refuse; it is left out"
        report.error(root.path, text)
        return None
    report.problems += own.problems
    return [
        File(file.path, (*above, *file.parts), file.size, file.modified_ns)
        for file in sorted(found, key=lambda file: (file.path != root.path, file.parts))
    ]


def _skill(folder: str, root: File, prefix: str | None) -> FolderSkill:
    # Read one skill. Raises FrontMatterError or OSError.
    if len(root.parts) == 1:
        raise FrontMatterError(1, "is not in a folder of its own; move it into a folder with the skill's name")
    name = root.parts[-2]
    head = read_head(read_within(root.path, folder, MOST_TOTAL_BYTES + 1), name)
    path = "/".join(map(escaped, root.parts[:-1]))
    uri = root_uri(f"{prefix}/{path}" if prefix else path)
    return FolderSkill(uri, folder, name, head, Origin(root, folder, "text/markdown", MOST_TOTAL_BYTES))


def _put(skill: FolderSkill, files: list[File], found: dict[str, SkillFile], folder: str, report: Report) -> None:
    # Add the files of a skill. Files that an enclosing skill has already added are reused.
    root = files[0]
    above = skill.uri.removesuffix(FILE)
    for file in files:
        key = above + "/".join(map(escaped, file.parts[len(root.parts) - 1 :]))
        is_root = file.path == root.path
        if is_root or key not in found:
            origin = Origin(file, folder, media_type(file.suffix), MOST_TOTAL_BYTES)
            title = printable("/".join(file.parts), 1000)
            found[key] = SkillFile(key, origin, title, skill if is_root else None)
        skill.files.append(found[key])

    for warning in skill.head.warnings:
        report.warning(root.path, warning)


def _report_other_folders(folder: str, roots: list[File], report: Report) -> None:
    # Report folders that are not skills.
    known = {root.parts[0] for root in roots}
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry for entry in entries if entry.is_dir()), key=lambda entry: entry.name)
    except OSError:
        return  # `files_of` has reported it

    for entry in found[:100]:
        if entry.name in known or entry.name.startswith((".", "__")) or entry.name == "node_modules":
            continue
        if entry.is_symlink():
            report.warning(entry.path, "is a link to a folder; links are not followed into folders")
        elif not os.path.lexists(os.path.join(entry.path, FILE)):
            report.warning(entry.path, f"is not a skill: it has no {FILE}")
