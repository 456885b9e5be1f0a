"""What a PEP 723 header (`# /// script`) says. Runs nothing."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

_BLOCK = r"(?m)^# /// script\s*$\s(?P<content>(^#(| .*)$\s)+)^# ///\s*$"
_NAME = re.compile(r"\s*([A-Za-z0-9][\w.-]*)")


class Header(Struct, frozen=True):
    """One header. `uv` is its `[tool.uv]`."""

    path: str
    dependencies: tuple[str, ...] = ()
    python: str = ""
    uv: dict[str, Any] = {}

    @property
    def allows_this_python(self) -> bool:
        """Whether it allows the Python that runs; what is not understood is for uv."""
        return all(_allows(part) for part in self.python.split(","))


def read_header(path: str) -> Header:
    """The header of a file, an empty one if it has none. Raises ConfigurationError for one that is wrong."""
    import tomllib

    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return Header(path)  # who loads it says so

    blocks = list(re.finditer(_BLOCK, text))
    if not blocks:
        return Header(path)
    if len(blocks) > 1:
        raise ConfigurationError(f"{path}: has more than one # /// script; PEP 723 allows one")
    lines = [line[2:] if line.startswith("# ") else line[1:] for line in blocks[0]["content"].splitlines()]
    try:
        found = tomllib.loads("\n".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        first = text.count("\n", 0, blocks[0].start()) + 1
        raise ConfigurationError(f"{path}, line {first}: its # /// script is no TOML: {printable(error)}") from None

    dependencies = found.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(isinstance(each, str) for each in dependencies):
        raise ConfigurationError(f"{path}: dependencies in its # /// script is to be a list of texts")

    python = found.get("requires-python", "")
    if not isinstance(python, str):
        raise ConfigurationError(f'{path}: requires-python in its # /// script is to be a text, as ">=3.12"')

    tool = found.get("tool")
    settings = tool.get("uv") if isinstance(tool, dict) else None
    return Header(path, tuple(dependencies), python.strip(), settings if isinstance(settings, dict) else {})


def requirement_name(requirement: str) -> str:
    """What is to be installed, as package indexes compare names; "" for what is none."""
    found = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", found[1]).lower() if found else ""


def own_version() -> str:
    """The version of the Python that runs, in three numbers."""
    return ".".join(map(str, sys.version_info[:3]))


def as_script(header: Header, more: Iterable[str], python: str) -> str:
    """The header of a script elsewhere that asks for the same, and for `more` and a version of Python too."""
    needed = list(dict.fromkeys([*header.dependencies, *more]))
    lines = [f"requires-python = {_toml(f'{header.python},{python}')}", f"dependencies = {_toml(needed)}"]
    if header.uv:
        settings = _anchored(header.uv, os.path.dirname(os.path.abspath(header.path)))
        lines += ["[tool.uv]", *(f"{_toml(name)} = {_toml(value)}" for name, value in settings.items())]
    return "".join(f"# {line}\n" for line in ["/// script", *lines, "///"])


def _anchored(value: Any, folder: str) -> Any:
    """A setting with its paths as they are from everywhere."""
    if isinstance(value, dict):
        return {
            name: os.path.join(folder, each) if name == "path" and isinstance(each, str) else _anchored(each, folder)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_anchored(each, folder) for each in value]
    if isinstance(value, str) and value.startswith(("./", "../")):
        return os.path.normpath(os.path.join(folder, value))
    return value


def _toml(value: Any) -> str:
    """A value as TOML writes it, in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(str(name))} = {_toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)  # numbers and times


def _allows(part: str) -> bool:
    found = re.fullmatch(r"\s*(>=|<=|>|<|==|!=|~=)\s*(\d+)\.(\d+)(?:\.(\d+|\*))?\s*", part)
    if found is None:
        return True

    size = 2 if found[4] in (None, "*") else 3
    there, asked = sys.version_info[:size], tuple(int(each) for each in found.groups()[1 : size + 1])
    return {
        ">=": there >= asked, "<=": there <= asked, ">": there > asked, "<": there < asked,
        "==": there == asked, "!=": there != asked,
        "~=": there >= asked and there[: size - 1] == asked[: size - 1],
    }[found[1]]  # fmt: skip
