"""The source of a bundle: which files of a folder are packed, the metadata of its project, and the zip file.

Hidden files, secrets and files that the server does not use are left out. The metadata comes from pyproject.toml,
requirements.txt and the header of a script.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from importlib.metadata import packages_distributions
from pathlib import Path

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from mcpd.cli.install.files import explained
from mcpd.cli.scripts import read_header
from mcpd.errors import ConfigurationError
from mcpd.transports.files import replacing

# A file with further patterns of files to leave out, one per line, as the official tool reads it.
IGNORE = ".mcpbignore"

MAX_BYTES = 512 * 1024 * 1024
MAX_FILES = 50_000

_LITTER = ("__pycache__", "node_modules", "*.pyc", "*.pyo", "*.egg-info", "*.mcpb", "*.dxt", "*.log", "*.tmp", "*.swp",
           "Thumbs.db", "uv.lock")  # fmt: skip
_SECRETS = ("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "*.keystore", "id_rsa*", "id_ed25519*", "id_ecdsa*",
            "secret.*", "secrets.*", "*.secret", "*.secrets", "credentials", "credentials.*", "*credentials*.json",
            "service-account*.json", "service_account*.json", "*.token", "token", "token.*")  # fmt: skip
_NOT_SECRET = (".py", ".md", ".html")
_KEY_HEAD_BYTES = 4096
_MAX_TEXT = 1024 * 1024
_OF_ALL_KINDS = "in a folder with files of all kinds; --include takes it"


class Collected(Struct):
    """The selected files, with paths relative to the folder and `/` as separator."""

    # The path of the file to read, by its path in the bundle.
    files: dict[str, str]
    # The reason, by path, for each file that is left out. Folders end with `/`.
    left_out: dict[str, str]
    bytes: int = 0


class Selection(Struct, frozen=True):
    """The rules that select files below a folder. Patterns match names, or paths below the folder."""

    # The Python files and packages to take; None for all.
    code: frozenset[str] | None = None
    # Whether to take files that are not Python.
    has_data: bool = True
    ignored: tuple[str, ...] = ()
    # Patterns of files to take although they are hidden, ignored, not imported, or look like secrets.
    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def reason_left_out(self, inside: str, path: str, *, is_folder: bool = False) -> str:
        """Return why a file or folder is left out; "" if it is taken."""
        name = os.path.basename(path)
        if matches_pattern(inside, name, self.excluded):
            return "excluded"
        if matches_pattern(inside, name, self.included) or any(_is_below(inside, folder) for folder in self.included):
            return ""
        if is_folder and any(_is_below(pattern.strip("/"), inside) for pattern in self.included):
            return ""  # something in it is included
        if why := _default_reason(name):
            return why
        if matches_pattern(inside, name, self.ignored):
            return f"named in {IGNORE}"
        if is_folder and self.code is not None and os.path.isfile(os.path.join(path, "mcpd.toml")):
            has_code = any(each.startswith(path + os.sep) for each in self.code)
            return "" if has_code else "another server; --include takes it"
        if is_folder or self.code is None or any(_is_in(path, each) for each in self.code):
            return ""
        if path.endswith(".py"):
            return "not imported by the server; --include takes it"

        return "" if self.has_data else _OF_ALL_KINDS

    def may_take_from(self, inside: str, path: str) -> bool:
        """Return whether a folder has code of the server, or included files."""
        if any(_is_in(each, path) or _is_in(path, each) for each in self.code or ()):
            return True
        return any(
            "/" not in pattern or _is_below(pattern.strip("/"), inside) or _is_below(inside, pattern)
            for pattern in self.included
        )


def _is_in(path: str, place: str) -> bool:
    return path == place or path.startswith(place + os.sep)


def collect(root: str, selection: Selection | None = None) -> Collected:
    """Select the files below a folder. Raises ConfigurationError if they are too many or too large."""
    found = Collected({}, {})
    selection = selection or Selection()
    for folder, names, files in os.walk(root):
        for name in sorted(names):
            path = os.path.join(folder, name)
            inside = _inside(path, root)
            why = selection.reason_left_out(inside, path, is_folder=True)
            if os.path.islink(path):
                why = why or "a link to a folder"
            elif os.path.isfile(os.path.join(path, "pyvenv.cfg")):
                why = why or "a virtual environment"
            if not why and not selection.has_data and not selection.may_take_from(inside, path):
                why = _OF_ALL_KINDS
            if why:
                found.left_out[f"{inside}/"] = why
                names.remove(name)
        names.sort()
        for name in sorted(files):
            _add_file(os.path.join(folder, name), root, selection, found)

    return found


def ignored_here(root: str) -> tuple[str, ...]:
    """Return the patterns in the folder's ignore file."""
    try:
        with open(os.path.join(root, IGNORE), encoding="utf-8-sig") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError):
        return ()

    return tuple(line for line in lines if line and not line.startswith("#"))


def _add_file(path: str, root: str, selection: Selection, found: Collected) -> None:
    inside = _inside(path, root)
    why = selection.reason_left_out(inside, path) or _file_reason(path, root)
    if why:
        found.left_out[inside] = why
        return
    found.files[inside] = path
    found.bytes += os.path.getsize(path)
    if found.bytes > MAX_BYTES or len(found.files) > MAX_FILES:
        raise ConfigurationError(
            f"{root}: its files are more than a bundle takes ({MAX_BYTES // 1024 // 1024} MiB, "
            f"{MAX_FILES} files); list files that do not belong to the server in {IGNORE}, one pattern "
            "per line"
        )


def _default_reason(name: str) -> str:
    if name.startswith("."):
        return "hidden"
    if any(fnmatchcase(name, pattern) for pattern in _LITTER):
        return "not part of the server"
    if not name.endswith(_NOT_SECRET) and any(fnmatchcase(name.lower(), pattern) for pattern in _SECRETS):
        return "may be a secret"

    return ""


def matches_pattern(inside: str, name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a pattern matches this name or, if it has a slash, this path below the folder."""
    for pattern in patterns:
        bare = pattern.strip("/")
        if fnmatchcase(inside, bare) if "/" in bare or pattern.startswith("/") else fnmatchcase(name, bare):
            return True

    return False


def _is_below(inside: str, folder: str) -> bool:
    return inside.startswith(folder.strip("/") + "/")


def _file_reason(path: str, root: str) -> str:
    if os.path.islink(path):
        target = os.path.realpath(path)
        if not target.startswith(os.path.realpath(root) + os.sep):
            return "a link to a file elsewhere"
    if not os.path.isfile(path):
        return "no file"
    with explained(f"{path} cannot be read"), open(path, "rb") as file:
        head = file.read(_KEY_HEAD_BYTES)
    is_key = b"-----BEGIN " in head and b"PRIVATE KEY-----" in head
    return "a private key" if is_key and not path.endswith(_NOT_SECRET) else ""


def _inside(path: str, root: str) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")


_SUFFIX = ".py"


def imported_names(path: str) -> set[str]:
    """Return the full names of all modules that a file imports; relative ones begin with a dot."""
    # Nothing is run: the file is parsed. A file that cannot be read or parsed imports nothing.
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return set()

    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found.add(base)
            found |= {f"{base}{'' if base.endswith('.') else '.'}{alias.name}" for alias in node.names}

    return found


def local_files(path: str) -> list[str]:
    """Return a file and the modules in its folder that it imports, directly or indirectly."""
    # Paths are absolute. A package is given as its folder, with all of its files.
    folder = os.path.dirname(path)
    found = {path}
    waiting = [path]
    while waiting:
        for name in imported_names(waiting.pop()):
            top = name.lstrip(".").partition(".")[0]
            for place in (os.path.join(folder, top + _SUFFIX), os.path.join(folder, top)):
                if not top or place in found:
                    continue
                if place.endswith(_SUFFIX) and os.path.isfile(place):
                    found.add(place)
                    waiting.append(place)
                elif not place.endswith(_SUFFIX) and (inner := _python_files(place)):
                    found.add(place)
                    waiting += inner

    return sorted(found)


def distributions_of(files: Iterable[str], local: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the top-level packages that these files import, each with its installed distributions."""
    # The list is empty for a package that is not installed. The standard library and the modules in `local` are left
    # out.
    known = packages_distributions()
    ours = {*local, *sys.stdlib_module_names, "mcpd"}
    tops = {name.partition(".")[0] for file in files for name in imported_names(file) if not name.startswith(".")}
    return {top: sorted(set(known.get(top, ()))) for top in sorted(tops - ours - {""})}


def _python_files(folder: str) -> list[str]:
    return [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names if name.endswith(_SUFFIX)]


_WHEN = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644


def write_archive(path: str, files: Mapping[str, bytes | str]) -> int:
    """Write a zip file, and return its size in bytes.

    `files` maps paths in the bundle to bytes, or to the path of a file to read. The zip file is written whole or not at
    all. Raises ConfigurationError.
    """
    with (
        explained(f"{path} cannot be written"),
        replacing(path, mode=0o644) as out,
        zipfile.ZipFile(out, "w") as archive,
    ):
        for name, source in sorted(files.items()):
            # The oldest time that a zip file can hold, on the same system: the same files make the same bytes.
            entry = zipfile.ZipInfo(name, _WHEN)
            entry.create_system, entry.external_attr = 3, _MODE << 16
            data = source if isinstance(source, bytes) else Path(source).read_bytes()
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)

    return os.path.getsize(path)


class Person(Struct, frozen=True):
    name: str = ""
    email: str = ""


class Project(Struct, frozen=True, kw_only=True, rename="kebab"):
    """The table `[project]` of pyproject.toml, and the file that names the dependencies; "" or None if missing."""

    file: str = ""
    name: str = ""
    version: str = ""
    description: str = ""
    authors: tuple[Person, ...] = ()
    license: str | dict[str, str] = ""
    keywords: tuple[str, ...] = ()
    # By lower-case label.
    urls: dict[str, str] = {}
    scripts: dict[str, str] = {}
    requires_python: str = ""
    dependencies: tuple[str, ...] | None = None

    @property
    def author(self) -> Person:
        return self.authors[0] if self.authors else Person()

    @property
    def license_text(self) -> str:
        """The license, which is a table in older files."""
        return self.license if isinstance(self.license, str) else self.license.get("text", "")


def read_project(root: str, script: str | None = None) -> Project:
    """Read the files in a folder, and the header of a script in it. Raises ConfigurationError for an invalid file."""
    project = _read_pyproject(os.path.join(root, "pyproject.toml"))
    header = None if script is None else read_header(script)
    if header is not None:
        python = header.python or project.requires_python
        return replace(project, file=script, dependencies=header.dependencies, requires_python=python)

    path = os.path.join(root, "requirements.txt")
    text = _text(path) if project.dependencies is None else None
    if text is None:
        return project
    lines = [re.split(r"(?:^|\s)#", line)[0].strip() for line in text.splitlines()]
    return replace(project, file=path, dependencies=tuple(line for line in lines if line and not line.startswith("-")))


def _read_pyproject(path: str) -> Project:
    text = _text(path)
    try:
        project = convert(tomllib.loads(text or "").get("project", {}), Project)
    except (tomllib.TOMLDecodeError, RecursionError, ValidationError) as error:
        raise ConfigurationError(f"{path}: {error}") from None

    urls = {label.lower(): url for label, url in project.urls.items()}
    return project if text is None else replace(project, file=path, urls=urls)


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read(_MAX_TEXT)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
