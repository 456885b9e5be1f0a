"""Reads `mcpd.toml`, or `[tool.mcpd]` in a `pyproject.toml`.

Every mistake is an error and is reported with its line: a misspelt `tokens-file` would leave a server without
authorization.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.server.settings import Option, command_options, parse_size
from .lookup import FILE, FOLDERS
from .tables import DOING, PROFILES, Configuration, OpenApiTable, ToolTable, pattern_message

_MAX_BYTES = 1024 * 1024


def read(path: str) -> Configuration:
    """Return the settings in a file. Raises ConfigurationError, with one line per mistake, if the file is not valid."""
    shown = os.path.relpath(path) if path.startswith(os.path.join(os.getcwd(), "")) else path
    text, members, prefix = _load(path, shown)
    problems: list[tuple[int, str]] = []

    def report(where: tuple[str, ...], what: str) -> None:
        problems.append((line_of(text, (*prefix, *where)) or 1, what))

    found: Configuration = _converted(members, Configuration, report)
    _check_folders(found, report)
    _check_tools(found.docs.tools, report)
    serve = _serve_values(found.serve, report)
    openapi = {
        name: _converted(table, OpenApiTable, report, ("openapi", name)) for name, table in found.openapi.items()
    }
    if problems:
        raise ConfigurationError("\n".join(f"{shown}, line {line}: {what}" for line, what in sorted(problems)))
    return msgspec.structs.replace(found, serve=serve, openapi=openapi)


def _load(path: str, shown: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    # Return the text of a file, its members, and the keys of the table that they are in.
    import tomllib  # many folders do not have such a file

    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigurationError(f"{shown} is larger than {_MAX_BYTES} bytes, the limit for a configuration file")
        text = data.decode().removeprefix("\ufeff")
        members = tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(f"{shown} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{shown} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{shown} is not valid TOML: {printable(error)}") from None

    if os.path.basename(path) == FILE:
        return text, members, ()
    table = members.get("tool", {})
    table = table.get("mcpd", {}) if isinstance(table, dict) else {}
    return text, table if isinstance(table, dict) else {}, ("tool", "mcpd")


def _converted(members: dict[str, Any], kind: Any, report: Any, above: tuple[str, ...] = ()) -> Any:
    # Convert the table at the path `above` to its struct. Invalid members are removed and reported.
    try:
        members = msgspec.convert(members, dict[str, Any])
    except msgspec.ValidationError:
        report(above, f"{'.'.join(above)}: expected a table")
        members = {}
    for _ in range(1000):
        try:
            return msgspec.convert(members, kind)
        except msgspec.ValidationError as error:
            where = _remove_member(members, str(error), kind, report, above)
            if not where:
                raise ConfigurationError(f"{'.'.join((FILE, *above))}: {printable(error)}") from None
    raise ConfigurationError(f"{FILE} has more than 1,000 mistakes")


# `re` compiles these when there is a mistake.
_UNKNOWN = r"(?s)Object contains unknown field `(.*?)`(?: - at `\$(.*)`)?$"
_AT = r"(?s)(.*) - at `\$(.*)`$"


def _remove_member(
    members: dict[str, Any], text: str, kind: Any, report: Any, above: tuple[str, ...]
) -> tuple[str, ...]:
    # Remove the member that a msgspec error is about, report it, and return its path.
    if unknown := re.match(_UNKNOWN, text):
        path = (*_keys(unknown[2] or ""), unknown[1])
        what = _no_such_key(path, kind, above)
    elif at := re.match(_AT, text):
        path = _keys(at[2])
        what = f"{'.'.join((*above, *path))}: {_translated(at[1])}"
    else:
        return ()

    table: Any = members
    for depth, key in enumerate(path):
        if not isinstance(table, dict) or key not in table:
            return ()
        if depth == len(path) - 1 or not isinstance(table[key], dict):
            del table[key]
            break
        table = table[key]
    report((*above, *path), what)
    return path


def _translated(text: str) -> str:
    # Translate a msgspec message to the names that TOML has for types.
    if " matching regex " in text:
        return pattern_message(text)
    message = f"{text[0].lower()}{text[1:]}".replace("`", "")
    words = {"str": "string", "int": "whole number", "float": "number", "bool": "true or false", "object": "table",
             "array": "list"}  # fmt: skip
    if message.startswith("expected "):
        message = re.sub(rf"\b(?:{'|'.join(words)})\b", lambda kind: words[kind[0]], message.replace(" | null", ""))
    return message


def _keys(path: str) -> tuple[str, ...]:
    return tuple(key for key in re.sub(r"\[[^\]]*\]", "", path).split(".") if key)


def _no_such_key(path: tuple[str, ...], kind: Any, above: tuple[str, ...]) -> str:
    # Return a message that says that a key is unknown, with a suggestion.
    for key in path[:-1]:
        kinds = {field.encode_name: field.type for field in msgspec.structs.fields(kind)} if kind is not None else {}
        kind = next((one for one in _parts(kinds.get(key)) if isinstance(one, type) and issubclass(one, Struct)), None)
    known = [field.encode_name for field in msgspec.structs.fields(kind)] if kind is not None else []
    return _unknown(".".join((*above, *path)), path[-1], known)


def _parts(kind: Any) -> tuple[Any, ...]:
    # Return the members of a union, or the type itself, without annotations.
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return tuple(one for part in get_args(kind) for one in _parts(part)) or (kind,)


def _unknown(shown: str, key: str, known: list[str]) -> str:
    from difflib import get_close_matches  # only needed for errors

    near = get_close_matches(key, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
    return f"unknown key {printable(shown)}; {hint}"


def _check_tools(tools: str | dict[str, Any], report: Any) -> None:
    # Check the tables in `[docs.tools]`, whose names the author may choose.
    if isinstance(tools, str):
        if tools not in PROFILES:
            text = f"docs.tools: unknown profile {printable(tools)}; known profiles: {', '.join(PROFILES)}"
            report(("docs", "tools"), text)
        return
    for name, table in tools.items():
        where = ("docs", "tools", name)
        if not isinstance(table, dict):
            report(where, f"{'.'.join(where)}: expected a table such as [docs.tools.{printable(name)}]")
            continue
        found = _converted(table, ToolTable, report, where)
        if found.does is None and name not in DOING:
            report(where, f"{'.'.join(where)}: unknown operation; add does = one of {', '.join(DOING)}")


def _check_folders(found: Configuration, report: Any) -> None:
    for name in FOLDERS:
        if name == "docs":  # documents may be outside the folder
            continue
        folder = getattr(found, name).folder
        if os.path.isabs(folder) or ".." in folder.replace("\\", "/").split("/"):
            text = f"{name}.folder: {printable(folder)} is not below the folder of this file; name a folder below it"
            report((name, "folder"), text)


# -- [serve] ---------------------------------------------------------------------------------


def serve_keys() -> dict[str, tuple[str, str, Option, Any]]:
    """Map each key of `[serve]` to its extension ("" for none), its member, its `Option` and its type."""
    from mcpd.server.extensions.serving import serve_options  # few files have a [serve] table

    found = {
        option.flag.removeprefix("--"): ("", name, option, kind) for name, (option, kind) in command_options().items()
    }
    for each in serve_options():
        found[each.option.flag.removeprefix("--")] = (each.id, each.name, each.option, each.kind)
    return found


def _serve_values(table: Mapping[str, Any], report: Any) -> dict[str, Any]:
    if not table:
        return {}
    known = serve_keys()
    values: dict[str, Any] = {}
    for key, given in table.items():
        if key not in known:
            report(("serve", key), _unknown(f"serve.{key}", key, list(known)))
            continue
        _, _, option, kind = known[key]
        try:
            values[key] = _serve_value(option, kind, given)
        except ValueError as error:
            report(("serve", key), f"serve.{key}: {error}, not {printable(given, 60)}")

    return values


def _serve_value(option: Option, kind: Any, given: Any) -> Any:
    # Convert one option to its type. Raises ValueError that says what is expected.
    kinds = (kind, *get_args(kind))
    if kind is bool:
        if isinstance(given, bool):
            return given
        raise ValueError("expected true or false")

    if option.choices:
        if given in option.choices:
            return given
        raise ValueError(f"expected one of {', '.join(option.choices)}")

    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if float in kinds:
        if is_number and given >= 0:
            return float(given)
        raise ValueError("expected a number of seconds")

    if int in kinds:
        if option.is_size and isinstance(given, str):
            return parse_size(given)
        if isinstance(given, int) and is_number and given >= 1:
            return given
        raise ValueError("expected a whole number, 1 or more" + (", or a size like 512M" if option.is_size else ""))

    if get_origin(kind) is tuple:
        if isinstance(given, list) and all(isinstance(item, str) for item in given):
            return tuple(given)
        raise ValueError("expected a list of strings")

    if isinstance(given, str):
        return given
    raise ValueError("expected a string")


_HEADER = re.compile(r"\s*\[\[?\s*([^\]#]+?)\s*\]")
_KEY = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'))*)\s*="""
)
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'""")


def line_of(text: str, path: Sequence[str]) -> int | None:
    # The parser in the standard library does not report lines. The contents of multi-line strings are skipped. Without
    # the key, the line of the innermost table around it is returned.
    wanted, best, length = tuple(path), None, 0
    table: tuple[str, ...] = ()
    quotes = ""
    for number, line in enumerate(text.split("\n"), 1):
        if quotes:
            quotes = "" if line.count(quotes) % 2 else quotes
            continue

        found: tuple[str, ...] = ()
        if header := _HEADER.match(line):
            found = table = _key_parts(header[1])
        elif key := _KEY.match(line):
            found = table + _key_parts(key[1])
            quotes = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")
        if len(found) > length and found == wanted[: len(found)]:
            best, length = number, len(found)

    return best


def _key_parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") if part[0] in "\"'" else part for part in _PART.findall(text))
