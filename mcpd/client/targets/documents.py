"""Configuration files as objects: JSON, with comments and trailing commas or without, TOML, YAML if a library is there.

Read only. What is written in a file is shown in no error: it may hold tokens.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from mcpd.errors import ConfigurationError

FORMATS = {".json": "json", ".jsonc": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
"""What a file holds, by the end of its name. All JSON is read with comments, as most hosts read theirs."""

MOST_BYTES = 64 * 1024 * 1024

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_NOT_A_LINE_END = re.compile(r"[^\n]")


def format_of(path: str) -> str | None:
    """The format of a file with this name, None for one that holds no configuration."""
    return FORMATS.get(os.path.splitext(path)[1].lower())


def read_document(path: str, kind: str) -> dict[str, Any]:
    """The object in a file of this format. Raises ConfigurationError that says where the file is wrong."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise ConfigurationError(f"{path} is no configuration: it has more than {MOST_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8, at byte {error.start}") from None

    found = _READERS[kind](text, path) if text.strip() else {}
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: there is no object in this file, but a {type(found).__name__}")
    return found


def without_comments(text: str) -> str:
    """JSON without what only JSON with comments has; every character stays at its line and column."""
    return _COMMA.sub(_blank, _COMMENT.sub(_blank, text))


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found.startswith('"') else _NOT_A_LINE_END.sub(" ", found)


def _json(text: str, path: str) -> Any:
    try:
        return json.loads(without_comments(text))
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: what is in it is nested too deeply") from None


def _toml(text: str, path: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _yaml(text: str, path: str) -> Any:
    load, problem = _yaml_library(path)
    try:
        return load(text)
    except (problem, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigurationError(f"{path}{place}: {getattr(error, 'problem', None) or 'this is no YAML'}") from None


def _yaml_library(path: str) -> tuple[Callable[[str], Any], type[Exception]]:
    """What reads YAML, and what it raises: the library of whoever reads much of it, else that of `mcpd install`."""
    try:
        yaml: Any = import_module("yaml")
        return yaml.safe_load, yaml.YAMLError
    except ImportError:
        pass
    try:
        ruamel: Any = import_module("ruamel.yaml")
    except ImportError:
        raise ConfigurationError(f"{path} is YAML, which needs a library: pip install 'mcpd-server[install]'") from None
    return ruamel.YAML(typ="safe", pure=True).load, ruamel.error.YAMLError


_READERS = {"json": _json, "toml": _toml, "yaml": _yaml}
