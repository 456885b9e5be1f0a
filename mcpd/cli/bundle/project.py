"""Reads the metadata and requirements of a project: pyproject.toml, requirements.txt, the header of a script."""

from __future__ import annotations

import os
import re
import tomllib
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mcpd.errors import ConfigurationError

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
