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
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mcpd.errors import ConfigurationError
from mcpd.transports.files import replacing

IGNORE = ".mcpbignore"
"""A file with further patterns of files to leave out, one per line, as the official tool reads it."""

MAX_BYTES = 512 * 1024 * 1024
MAX_FILES = 50_000

_LITTER = ("__pycache__", "node_modules", "*.pyc", "*.pyo", "*.egg-info", "*.mcpb", "*.dxt", "*.log", "*.tmp", "*.swp",
           "Thumbs.db", "uv.lock")  # fmt: skip
_SECRETS = ("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "*.keystore", "id_rsa*", "id_ed25519*", "id_ecdsa*",
            "secret.*", "secrets.*", "*.secret", "*.secrets", "credentials", "credentials.*", "*credentials*.json",
            "service-account*.json", "service_account*.json", "*.token", "token", "token.*")  # fmt: skip
_NOT_SECRET = (".py", ".md", ".html")
_KEY_HEAD_BYTES = 4096


class Collected(Struct):
    """The selected files, with paths relative to the folder and `/` as separator."""

    files: dict[str, str]
    """The path of the file to read, by its path in the bundle."""
    left_out: dict[str, str]
    """The reason, by path, for each file that is left out. Folders end with `/`."""
    bytes: int = 0


class Selection(Struct, frozen=True):
    """The rules that select files below a folder. Patterns match names, or paths below the folder."""

    code: frozenset[str] | None = None
    """The Python files and packages to take; None for all."""
    has_data: bool = True
    """Whether to take files that are not Python."""
    ignored: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    """Patterns of files to take although they are hidden, ignored, not imported, or look like secrets."""
    excluded: tuple[str, ...] = ()

    def reason_left_out(self, inside: str, path: str, *, is_folder: bool = False) -> str:
        """Return why a file or folder is left out; "" if it is taken."""
        name = os.path.basename(path)
        if matches_pattern(inside, name, self.excluded):
            return "excluded"
        if matches_pattern(inside, name, self.included) or any(_is_below(inside, one) for one in self.included):
            return ""
        if is_folder and any(_is_below(one.strip("/"), inside) for one in self.included):
            return ""  # something in it is included
        if why := _default_reason(inside, name):
            return why
        if matches_pattern(inside, name, self.ignored):
            return f"named in {IGNORE}"
        if is_folder and self.code is not None and os.path.isfile(os.path.join(path, "mcpd.toml")):
            has_code = any(one.startswith(path + os.sep) for one in self.code)
            return "" if has_code else "another server; --include takes it"
        if is_folder or self.code is None or any(path == one or path.startswith(one + os.sep) for one in self.code):
            return ""
        if path.endswith(".py"):
            return "not imported by the server; --include takes it"

        return "" if self.has_data else "in a folder with files of all kinds; --include takes it"


def collect(root: str, selection: Selection | None = None) -> Collected:
    """Select the files below a folder. Raises ConfigurationError if they are too many or too large."""
    found = Collected({}, {})
    selection = selection or Selection()
    for folder, names, files in os.walk(root):
        for name in sorted(names):
            path = os.path.join(folder, name)
            inside = _inside(path, root)
            why = selection.reason_left_out(inside, path, is_folder=True) or _folder_reason(path, root)
            if not why and not selection.has_data and not _may_contain_files(path, inside, selection):
                why = "in a folder with files of all kinds; --include takes it"
            if why:
                found.left_out[f"{inside}/"] = why
                names.remove(name)
        names.sort()
        for name in sorted(files):
            _add_file(os.path.join(folder, name), root, selection, found)

    return found


def _may_contain_files(path: str, inside: str, selection: Selection) -> bool:
    """Return whether a folder has code of the server, or included files."""
    for one in selection.code or ():
        if one == path or one.startswith(path + os.sep) or path.startswith(one + os.sep):
            return True
    patterns = selection.included
    return any("/" not in one or _is_below(one.strip("/"), inside) or _is_below(inside, one) for one in patterns)


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


def _default_reason(inside: str, name: str) -> str:
    """Why a file of this name is left out by default; "" if it is taken."""
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


def _folder_reason(path: str, root: str) -> str:
    if os.path.islink(path):
        return "a link to a folder"
    if os.path.isfile(os.path.join(path, "pyvenv.cfg")):
        return "a virtual environment"

    return ""


def _file_reason(path: str, root: str) -> str:
    if os.path.islink(path):
        target = os.path.realpath(path)
        if not target.startswith(os.path.realpath(root) + os.sep):
            return "a link to a file elsewhere"
    if not os.path.isfile(path):
        return "no file"
    try:
        with open(path, "rb") as file:
            head = file.read(_KEY_HEAD_BYTES)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None

    return "a private key" if b"-----BEGIN " in head and b"PRIVATE KEY-----" in head and not _is_code(path) else ""


def _is_code(path: str) -> bool:
    return path.endswith(_NOT_SECRET)


def _inside(path: str, root: str) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")


_SUFFIX = ".py"


def imported_names(path: str) -> set[str]:
    """Return the full names of all modules that a file imports; relative ones begin with a dot.

    Nothing is run: the file is parsed. A file that cannot be read or parsed imports nothing.
    """
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
    """Return a file and the modules in its folder that it imports, directly or indirectly.

    Paths are absolute. A package is given as its folder, with all of its files.
    """
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
                elif not place.endswith(_SUFFIX) and _is_package(place):
                    found.add(place)
                    waiting += _python_files(place)

    return sorted(found)


def distributions_of(files: Iterable[str], local: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the top-level packages that these files import, each with its installed distributions.

    The list is empty for a package that is not installed. The standard library and the modules in `local` are left out.
    """
    known = packages_distributions()
    ours = {*local, *sys.stdlib_module_names, "mcpd"}
    tops = {name.partition(".")[0] for file in files for name in imported_names(file) if not name.startswith(".")}
    return {top: sorted(set(known.get(top, ()))) for top in sorted(tops - ours - {""})}


def _is_package(folder: str) -> bool:
    """Whether a folder holds Python files, with or without an `__init__.py`."""
    try:
        return any(name.endswith(_SUFFIX) for name in os.listdir(folder))
    except OSError:
        return False


def _python_files(folder: str) -> list[str]:
    return [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names if name.endswith(_SUFFIX)]


_WHEN = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip file can hold. It makes the same bytes from the same files."""
_MODE = 0o100644


def write_archive(path: str, files: Mapping[str, bytes | str]) -> int:
    """Write a zip file, and return its size in bytes.

    `files` maps paths in the bundle to bytes, or to the path of a file to read. The zip file is written whole or not at
    all. Raises ConfigurationError.
    """
    try:
        with (
            replacing(path, mode=0o644) as out,
            zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        ):
            for name in sorted(files):
                archive.writestr(_entry(name), _content(files[name]), compresslevel=9)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
    return os.path.getsize(path)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _WHEN)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3
    entry.external_attr = _MODE << 16
    return entry


def _content(source: bytes | str) -> bytes:
    if isinstance(source, bytes):
        return source
    with open(source, "rb") as file:
        return file.read()


_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_MAX_BYTES = 1024 * 1024


class Project(Struct, frozen=True, kw_only=True):
    """The metadata of a project; "" or None for missing values."""

    file: str = ""
    """The file that names the dependencies."""
    name: str = ""
    version: str = ""
    description: str = ""
    author: str = ""
    email: str = ""
    license: str = ""
    keywords: tuple[str, ...] = ()
    urls: dict[str, str] = {}
    """By lower-case label."""
    scripts: tuple[str, ...] = ()
    requires_python: str = ""
    dependencies: tuple[str, ...] | None = None


def read_project(root: str, script: str | None = None) -> Project:
    """Read the files in a folder, and the header of a script in it. Raises ConfigurationError for an invalid file."""
    found = _of_pyproject(os.path.join(root, "pyproject.toml"))
    head = _of_script(script) if script is not None else None
    if head is not None:
        dependencies, python = head
        python = python or found.requires_python
        return replace(found, file=script, dependencies=dependencies, requires_python=python)
    path = os.path.join(root, "requirements.txt")
    if found.dependencies is None and (listed := _of_requirements(path)) is not None:
        return replace(found, file=path, dependencies=listed)
    return found


def requirement_name(requirement: str) -> str:
    """Return the normalized name of the distribution that a requirement names; "" for a URL or path."""
    match = _NAME.match(requirement)
    return normalized(match[1]) if match else ""


def normalized(name: str) -> str:
    """Return a distribution's name in the form in which package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _of_pyproject(path: str) -> Project:
    text = _text(path)
    if text is None:
        return Project()
    try:
        table = tomllib.loads(text).get("project")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    if not isinstance(table, dict):
        return Project()

    people = [each for each in _items(table.get("authors")) if isinstance(each, dict)]
    person = people[0] if people else {}
    license = table.get("license")
    urls = table.get("urls")
    dependencies = table.get("dependencies")
    scripts = table.get("scripts")
    return Project(
        file=path,
        name=_string(table.get("name")),
        version=_string(table.get("version")),
        description=_string(table.get("description")),
        author=_string(person.get("name")),
        email=_string(person.get("email")),
        license=_string(license.get("text") if isinstance(license, dict) else license),
        keywords=_texts(table.get("keywords")),
        urls={str(label).lower(): str(url) for label, url in urls.items()} if isinstance(urls, dict) else {},
        scripts=tuple(scripts) if isinstance(scripts, dict) else (),
        requires_python=_string(table.get("requires-python")),
        dependencies=None if dependencies is None else _texts(dependencies),
    )


def _of_script(path: str) -> tuple[tuple[str, ...], str] | None:
    """The dependencies and the Python version in a script's header (PEP 723); None without a header."""
    text = _text(path)
    lines = None if text is None else _head(text.splitlines())
    if lines is None:
        return None
    try:
        table = tomllib.loads("\n".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path}: its `# /// script` header is not valid TOML: {error}") from None
    needs = _texts(table.get("dependencies"))
    return needs, _string(table.get("requires-python"))


def _head(lines: list[str]) -> list[str] | None:
    """The lines between `# /// script` and the last `# ///` of that comment, without the comment signs."""
    try:
        start = [line.rstrip() for line in lines].index("# /// script") + 1
    except ValueError:
        return None
    found: list[str] = []
    for line in lines[start:]:
        if not line.startswith("#"):
            break
        found.append(line[1:].removeprefix(" ").rstrip())
    ends = [at for at, line in enumerate(found) if line == "///"]
    return found[: ends[-1]] if ends else None


def _of_requirements(path: str) -> tuple[str, ...] | None:
    text = _text(path)
    if text is None:
        return None
    lines = (re.split(r"(?:^|\s)#", line)[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("-"))


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(each for each in _items(value) if isinstance(each, str))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
