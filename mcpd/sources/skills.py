"""Folders with a SKILL.md as skills: each file is a resource, and the skill says what all of them hold.

Files are read when they are asked for, and so are their digests made: a start reads the heads of the SKILL.md only, and
what a client is told fits what it then reads, also after an edit that nobody watched. What is listed as text is sent
as the bytes of the file, since its digest is made of them.
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
from mcpd.extensions.skills.constants import FILE, MOST_FILES, MOST_TOTAL_BYTES, SKILLS
from mcpd.extensions.skills.entries import Skill, SkillResource, is_name, root_uri
from mcpd.extensions.skills.extension import SkillsExtension
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import META
from mcpd.protocol.types.content import BlobResourceContents, TextResourceContents
from mcpd.protocol.types.resources import ReadResourceResult, Resource
from mcpd.server import Server
from mcpd.server.context.exchange import Exchange
from mcpd.server.folder_files import read_within
from mcpd.server.functions.threads import run_in_thread
from mcpd.server.registry.entries import Entries, ResourceEntry
from mcpd.server.registry.listing import ActiveExtensions
from mcpd.sources.files import MOST_OF_A_KIND, File, Report, escaped, files_of
from mcpd.sources.front_matter import FrontMatterError, read_front_matter
from mcpd.sources.resources import BINARY, Origin, is_text_type, media_type
from mcpd.sources.tables import SKILL_PREFIX, SkillsTable

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


log = logging.getLogger("mcpd")


class SkillFile(ResourceEntry):
    """One file of a skill. Equal to another one if the file has not changed."""

    def __init__(self, key: str, origin: Origin, title: str, skill: FolderSkill | None = None) -> None:
        """`skill` is the one whose SKILL.md this is."""
        self.key = key
        self.origin = origin
        self._title = title
        self._skill = skill

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SkillFile) and (self.key, self.origin) == (other.key, other.origin)

    def __hash__(self) -> int:
        return hash((self.key, self.origin))

    @property
    def extension_data(self) -> Mapping[str, Any]:
        """By this the extension finds it."""
        return {SKILLS: self._skill}

    def listed(self, active: ActiveExtensions) -> Resource:
        """The file as lists show it; a SKILL.md with what its head says."""
        file, kind = self.origin.file, self.origin.media_type
        if self._skill is not None:
            head = self._skill.head
            return Resource(
                uri=self.key, name=head.name, description=head.description, mime_type="text/markdown", size=file.size
            )
        name = printable(file.parts[-1], 300)
        return Resource(uri=self.key, name=name, title=self._title, mime_type=kind, size=file.size)

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        """What it holds now: as text if that gives the same bytes, else as bytes."""
        result: ReadResourceResult = await run_in_thread(self._read, uri, exchange=exchange)
        return result

    def _read(self, uri: str) -> ReadResourceResult:
        data = self.origin.read(uri)
        kind = "text/markdown" if self._skill is not None else self.origin.media_type
        if is_text_type(kind) and b"\0" not in data:
            try:
                return ReadResourceResult(contents=[TextResourceContents(uri, data.decode(), kind or "text/plain")])
            except UnicodeDecodeError:
                pass
        is_other = kind is None or is_text_type(kind)
        return ReadResourceResult(contents=[BlobResourceContents(uri, data, BINARY if is_other else kind)])


class _Digest(Struct, frozen=True):
    """What one file held when it was last read."""

    stamp: tuple[int, int]
    digest: str
    size: int


class FolderSkill:
    """One skill, a folder with a SKILL.md. `files` are its entries, that one too."""

    def __init__(self, uri: str, folder: str, name: str, head: SkillHead, origin: Origin) -> None:
        """`folder` is that of all skills, `name` that of its own one, `origin` its SKILL.md."""
        self.uri = uri
        self.head = head
        self.files: list[SkillFile] = []
        self._folder = folder
        self._name = name
        self._path = origin.file.path
        self._head_stamp = (origin.file.size, origin.file.modified_ns)
        self._digests: dict[str, _Digest] = {}
        self._problem = ""
        self._lock = threading.Lock()

    def describe(self) -> Skill | None:
        """The skill as its files are now; only those that have changed are read. None if it cannot be used now."""
        with self._lock:
            try:
                found = {file.key: digest for file in self.files if (digest := self._digest(file)) is not None}
                self._look_at_head(found)
            except (FrontMatterError, OSError) as error:
                line = f", line {error.line}" if isinstance(error, FrontMatterError) else ""
                self._tell(f"{self._path}{line}: {error}; it is not served any more")
                return None
            self._problem = ""
        resources = [SkillResource(uri=uri, digest=one.digest, size=one.size) for uri, one in found.items()]
        return Skill(uri=self.uri, frontmatter=self.head.members, resources=resources)

    def _digest(self, file: SkillFile) -> _Digest | None:
        """What a file holds now; None if it is gone, or too large to be read."""
        path = file.origin.file.path
        try:
            now = os.stat(path)
            stamp = now.st_size, now.st_mtime_ns
            known = self._digests.get(file.key)
            if known is not None and known.stamp == stamp:
                return known
            data = read_within(path, self._folder, MOST_TOTAL_BYTES + 1)
        except OSError:
            return None
        if len(data) > MOST_TOTAL_BYTES:
            return None
        found = _Digest(stamp, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
        self._digests[file.key] = found
        return found

    def _look_at_head(self, found: Mapping[str, _Digest]) -> None:
        """Read the head again, if the SKILL.md is another one now. Raises FrontMatterError, OSError."""
        if self.uri not in found:
            raise FrontMatterError(1, "is gone, or cannot be read")
        if sum(one.size for one in found.values()) > MOST_TOTAL_BYTES:
            raise FrontMatterError(1, f"its files have more than {MOST_TOTAL_BYTES} bytes together")
        if found[self.uri].stamp != self._head_stamp:
            head = read_head(read_within(self._path, self._folder, MOST_TOTAL_BYTES + 1), self._name)
            self.head, self._head_stamp = head, found[self.uri].stamp

    def _tell(self, text: str) -> None:
        if text != self._problem:
            self._problem = text
            log.error("%s", printable(text, 2000))


def skills_of(folder: str, table: SkillsTable, report: Report) -> list[ResourceEntry]:
    """The files of all skills in a folder and in folders below it; what cannot be a skill is reported.

    A file of a skill within another one is a file of both, and one resource.
    """
    is_wanted = _is_wanted(table.exclude)
    roots = files_of(folder, report, most=MOST_OF_A_KIND, is_wanted=lambda parts: _is_skill_file(parts, is_wanted))
    found: dict[str, SkillFile] = {}
    skills: list[FolderSkill] = []
    for root in roots:
        if root.parts[-1] != FILE:
            report.warning(root.path, f"is no skill: its name is {root.parts[-1]}, not {FILE}")
            continue
        try:
            files = _files(folder, root, is_wanted, report)
            skill = None if files is None else _skill(folder, root, table.prefix)
        except (FrontMatterError, OSError) as error:
            line = error.line if isinstance(error, FrontMatterError) else None
            what = error if line else f"cannot be read ({cast('OSError', error).strerror})"
            report.error(root.path, f"{what}; the skill is left out", line)
            continue
        if skill is not None and files is not None:
            skills.append(skill)
            _put(skill, files, found, folder, report)
    _say_what_is_none(folder, roots, report)
    return list(found.values())


def offer_skills(server: Server) -> None:
    """Let clients know that a server has skills, or may have some."""
    cast("SkillsExtension", server.extensions[SKILLS]).offer()


def add_skills(server: Server, folder: str | os.PathLike[str], prefix: str | None = None) -> list[str]:
    """Serve each folder below `folder` that has a SKILL.md as a skill, and give the URIs of these files.

    `prefix`, as `acme/billing`, stands before their paths: `skill://acme/billing/refunds/SKILL.md`. What cannot be
    used is logged and left out, and `mcpd check` names it. Called again it serves what is there then. Raises
    RegistrationError for a URI that is taken, and for a prefix that is none.
    """
    if prefix is not None and re.match(SKILL_PREFIX, prefix) is None:
        raise RegistrationError(f"add_skills: prefix is like acme/billing, not {prefix!r}")
    path = os.path.abspath(folder)
    report = Report(path)
    if not os.path.isdir(path):
        report.error(path, "is no folder; name the one that has the folders of skills in it")
    entries = skills_of(path, SkillsTable(prefix=prefix), report) if os.path.isdir(path) else []
    report.tell(report.found)
    offer_skills(server)
    server.replace(f"skills {path}", Entries(resources=entries, problems=report.found))
    return [entry.key for entry in entries if entry.extension_data[SKILLS] is not None]


def _is_wanted(exclude: tuple[str, ...]) -> Callable[[tuple[str, ...]], bool]:
    from fnmatch import fnmatchcase

    def is_wanted(parts: tuple[str, ...]) -> bool:
        path = "/".join(parts)
        return not any(fnmatchcase(path, each) or fnmatchcase(parts[-1], each) for each in exclude)

    return is_wanted


def _is_skill_file(parts: tuple[str, ...], is_wanted: Callable[[tuple[str, ...]], bool]) -> bool:
    return parts[-1].lower() == FILE.lower() and is_wanted(parts)


def _files(folder: str, root: File, is_wanted: Callable[[tuple[str, ...]], bool], report: Report) -> list[File] | None:
    """The files of the skill whose SKILL.md that is, which comes first; None if they are too many or too large."""
    above = root.parts[:-1]
    own = Report(report.root)
    found = files_of(
        os.path.dirname(root.path), own, most=MOST_FILES + 1, is_wanted=lambda parts: is_wanted((*above, *parts))
    )
    if len(found) > MOST_FILES:
        report.error(
            root.path, f"has more than {MOST_FILES} files beside it, which no host has to take; it is left out"
        )
        return None
    if sum(file.size for file in found) > MOST_TOTAL_BYTES:
        text = f"its files have more than {MOST_TOTAL_BYTES} bytes together, which no host has to take; it is left out"
        report.error(root.path, text)
        return None
    report.problems += own.problems
    return [
        File(file.path, (*above, *file.parts), file.size, file.modified_ns)
        for file in sorted(found, key=lambda file: (file.path != root.path, file.parts))
    ]


def _skill(folder: str, root: File, prefix: str | None) -> FolderSkill:
    """Raises FrontMatterError, OSError."""
    if len(root.parts) == 1:
        raise FrontMatterError(1, "stands in no folder of its own; put it into one that has the skill's name")
    name = root.parts[-2]
    head = read_head(read_within(root.path, folder, MOST_TOTAL_BYTES + 1), name)
    path = "/".join(map(escaped, root.parts[:-1]))
    uri = root_uri(f"{prefix}/{path}" if prefix else path)
    return FolderSkill(uri, folder, name, head, Origin(root, folder, "text/markdown", MOST_TOTAL_BYTES))


def _put(skill: FolderSkill, files: list[File], found: dict[str, SkillFile], folder: str, report: Report) -> None:
    """Add a skill's files to what was found; those that an enclosing skill has already are the same resources."""
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


def _say_what_is_none(folder: str, roots: list[File], report: Report) -> None:
    """Name the folders that nobody will find a skill in."""
    known = {root.parts[0] for root in roots}
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry for entry in entries if entry.is_dir()), key=lambda entry: entry.name)
    except OSError:
        return  # `files_of` has said so
    for entry in found[:100]:
        if entry.name in known or entry.name.startswith((".", "__")) or entry.name == "node_modules":
            continue
        if entry.is_symlink():
            report.warning(entry.path, "is a link to a folder; links are not followed into folders")
        elif not os.path.lexists(os.path.join(entry.path, FILE)):
            report.warning(entry.path, f"is no skill: it has no {FILE}")
