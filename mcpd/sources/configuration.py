"""`mcpd.toml`, or `[tool.mcpd]` of a pyproject.toml: what a folder says of the server that it is.

Every mistake is named with its file and line, and none is passed over: a misspelt `token-file` would leave a server
open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.serve_options import Option, command_options, parse_size
from mcpd.sources.auth_table import AuthTable
from mcpd.sources.docs_table import DOING, PROFILES, DocsTable, ToolTable
from mcpd.sources.lookup import FILE, FOLDERS
from mcpd.sources.toml_patterns import FILES_URI, SKILL_PREFIX, in_words

_MOST_BYTES = 1024 * 1024

_Folder = Annotated[str, Meta(min_length=1, description="The sub-folder, below this file's.")]
_Enabled = Annotated[bool, Meta(description="False: its sub-folder is not looked at.")]


class _Table(Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """A table whose keys are known."""


class _ToolsTable(_Table, frozen=True):
    """Functions of Python files: `[tools]`."""

    enabled: _Enabled = True
    folder: _Folder = "tools"
    import_timeout: Annotated[float, Meta(gt=0, description="Seconds that the import of one file may take.")] = 10.0


class _AppsTable(_Table, frozen=True):
    """Pages that show the results of tools: `[apps]`."""

    enabled: _Enabled = True
    folder: _Folder = "apps"


class ResourcesTable(_Table, frozen=True):
    """Files that clients read: `[resources]`."""

    enabled: _Enabled = True
    folder: _Folder = "resources"
    uri: Annotated[
        Annotated[str, Meta(pattern=FILES_URI)] | None,
        Meta(description="What the URIs of its files begin with, as notes://; by default resource://NAME/."),
    ] = None
    max_files: Annotated[
        int, Meta(ge=1, description="How many files are served; the others are named and left out.")
    ] = 10_000
    max_bytes: Annotated[int, Meta(ge=1, description="The largest file that is served, in bytes.")] = 16 * 1024 * 1024
    exclude: Annotated[tuple[str, ...], Meta(description='Files that are not served, as "*.bak" or "drafts/*".')] = ()


class _PromptsTable(_Table, frozen=True):
    """Markdown files that are prompts: `[prompts]`."""

    enabled: _Enabled = True
    folder: _Folder = "prompts"


class SkillsTable(_Table, frozen=True):
    """Folders of instructions for models: `[skills]`."""

    enabled: _Enabled = True
    folder: _Folder = "skills"
    prefix: Annotated[
        Annotated[str, Meta(pattern=SKILL_PREFIX)] | None,
        Meta(
            description="What stands before the paths of its skills, as acme/billing in skill://acme/billing/refunds."
        ),
    ] = None
    exclude: Annotated[tuple[str, ...], Meta(description='Files that are not served, as "*.bak" or "drafts/*".')] = ()


class Configuration(_Table, frozen=True):
    """All of the file, with the defaults of a folder that has none."""

    name: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The server's name, as clients see it; by default the folder's."),
    ] = None
    version: Annotated[str, Meta(description="The server's version.")] = "0.0.0"
    title: Annotated[str | None, Meta(description="A name for people.")] = None
    description: Annotated[str | None, Meta(description="What the server is, for people.")] = None
    instructions: Annotated[str | None, Meta(description="How to use the server, for models.")] = None
    website_url: str | None = None
    lifespan: Annotated[
        str | None,
        Meta(description="FILE:FUNCTION that opens what tools share; by default lifespan.py:lifespan, if it is there."),
    ] = None
    page_size: Annotated[int, Meta(ge=1, description="The length of one page of a list.")] = 1000
    tool_timeout: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description="Seconds that a tool may take.")] = (
        None
    )
    show_errors: Annotated[bool, Meta(description="Let the texts of all exceptions reach the model.")] = False
    serve: Annotated[
        dict[str, Any], Meta(description="The options of mcpd serve, without their dashes; flags go before them.")
    ] = {}
    auth: Annotated[AuthTable | None, Meta(description="Who may use it over HTTP and WebSocket.")] = None
    tools: _ToolsTable = _ToolsTable()
    apps: _AppsTable = _AppsTable()
    resources: ResourcesTable = ResourcesTable()
    prompts: _PromptsTable = _PromptsTable()
    skills: SkillsTable = SkillsTable()
    docs: DocsTable = DocsTable()


def read(path: str) -> Configuration:
    """What a file says. Raises ConfigurationError that names each mistake, with its line, on a line of its own."""
    shown = os.path.relpath(path) if path.startswith(os.path.join(os.getcwd(), "")) else path
    text, members, prefix = _load(path, shown)
    problems: list[tuple[int, str]] = []

    def say(where: tuple[str, ...], what: str) -> None:
        from mcpd.sources.toml_lines import line_of  # on the way to an error only

        problems.append((line_of(text, (*prefix, *where)) or 1, what))

    found = _texts(members) or _converted(members, Configuration, say)
    _check_folders(found, say)
    _check_tools(found.docs.tools, say)
    serve = _serve_values(found.serve, say)
    if problems:
        raise ConfigurationError("\n".join(f"{shown}, line {line}: {what}" for line, what in sorted(problems)))
    return msgspec.structs.replace(found, serve=serve)


def _load(path: str, shown: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """The text of a file, what it says to us, and below which keys that stands."""
    import tomllib  # many folders have no such file

    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ConfigurationError(f"{shown} is larger than {_MOST_BYTES} bytes; that is no configuration")
        text = data.decode().removeprefix("\ufeff")
        members = tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(f"{shown} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{shown} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{shown} is no TOML: {printable(error)}") from None

    if os.path.basename(path) == FILE:
        return text, members, ()
    table = members.get("tool", {})
    table = table.get("mcpd", {}) if isinstance(table, dict) else {}
    return text, table if isinstance(table, dict) else {}, ("tool", "mcpd")


# Keys of Configuration that take any text that is not empty. Most files have no others, and for these msgspec need
# not be told of all tables and their patterns first: a twentieth of the time to the first answer.
_TEXTS = {"name", "version", "title", "description", "instructions", "website-url"}


def _texts(members: dict[str, Any]) -> Configuration | None:
    """A file that has nothing but such texts; None is for msgspec to read."""
    if not all(key in _TEXTS and type(value) is str and value for key, value in members.items()):
        return None
    return Configuration(**{key.replace("-", "_"): value for key, value in members.items()})


def _converted(members: dict[str, Any], kind: Any, say: Any, above: tuple[str, ...] = ()) -> Any:
    """A table that stands at `above` as its struct, without the members that are wrong, each of which is said."""
    members = msgspec.convert(members, dict[str, Any])
    for _ in range(1000):
        try:
            return msgspec.convert(members, kind)
        except msgspec.ValidationError as error:
            where = _take_out(members, str(error), kind, say, above)
            if not where:
                raise ConfigurationError(f"{'.'.join((FILE, *above))}: {printable(error)}") from None
    raise ConfigurationError(f"{FILE}: has more mistakes than anybody would read")


# Compiled by `re` when there is a mistake.
_UNKNOWN = r"(?s)Object contains unknown field `(.*?)`(?: - at `\$(.*)`)?$"
_AT = r"(?s)(.*) - at `\$(.*)`$"


def _take_out(members: dict[str, Any], text: str, kind: Any, say: Any, above: tuple[str, ...]) -> tuple[str, ...]:
    """Take out the member that an error of msgspec's is about, and say what is wrong with it; gives where it was."""
    if unknown := re.match(_UNKNOWN, text):
        path = (*_keys(unknown[2] or ""), unknown[1])
        what = _no_such_key(path, kind, above)
    elif at := re.match(_AT, text):
        path = _keys(at[2])
        what = f"{'.'.join((*above, *path))}: {_in_words(at[1])}"
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
    say((*above, *path), what)
    return path


def _in_words(text: str) -> str:
    """What msgspec says of a value, with TOML's words for the types."""
    if " matching regex " in text:
        return in_words(text)
    said = f"{text[0].lower()}{text[1:]}".replace("`", "")
    words = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "object": "table",
             "array": "list"}  # fmt: skip
    if said.startswith("expected "):
        said = re.sub(rf"\b(?:{'|'.join(words)})\b", lambda one: words[one[0]], said.replace(" | null", ""))
    return said


def _keys(path: str) -> tuple[str, ...]:
    return tuple(key for key in re.sub(r"\[[^\]]*\]", "", path).split(".") if key)


def _no_such_key(path: tuple[str, ...], kind: Any, above: tuple[str, ...]) -> str:
    """That the last key of a path is not known, and what may stand there instead."""
    for key in path[:-1]:
        kinds = {field.encode_name: field.type for field in msgspec.structs.fields(kind)} if kind is not None else {}
        kind = next((one for one in _parts(kinds.get(key)) if isinstance(one, type) and issubclass(one, Struct)), None)
    known = [field.encode_name for field in msgspec.structs.fields(kind)] if kind is not None else []
    return _unknown(".".join((*above, *path)), path[-1], known)


def _parts(kind: Any) -> tuple[Any, ...]:
    """The types that a union is made of, without what is annotated; a type itself."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return tuple(one for part in get_args(kind) for one in _parts(part)) or (kind,)


def _unknown(shown: str, key: str, known: list[str]) -> str:
    from difflib import get_close_matches  # on the way to an error only

    near = get_close_matches(key, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"there is no key {printable(shown)}; {hint}"


def _check_tools(tools: str | dict[str, Any], say: Any) -> None:
    """The tables of tools over documents, whose names the author may choose."""
    if isinstance(tools, str):
        if tools not in PROFILES:
            say(
                ("docs", "tools"), f"docs.tools: there is no profile {printable(tools)}; there is {', '.join(PROFILES)}"
            )
        return
    for name, table in tools.items():
        where = ("docs", "tools", name)
        if not isinstance(table, dict):
            say(where, f"{'.'.join(where)}: expected a table, as [docs.tools.{printable(name)}]")
            continue
        found = _converted(table, ToolTable, say, where)
        if found.does is None and name not in DOING:
            say(where, f"{'.'.join(where)}: what it does is not known; write does = one of {', '.join(DOING)} in it")


def _check_folders(found: Configuration, say: Any) -> None:
    for name in FOLDERS:
        if name == "docs":  # documents may lie elsewhere
            continue
        folder = getattr(found, name).folder
        parts = folder.replace("\\", "/").split("/")
        if os.path.isabs(folder) or ".." in parts:
            say(
                (name, "folder"),
                f"{name}.folder: {printable(folder)} is not below this file's folder; name one that is",
            )


# -- [serve] ---------------------------------------------------------------------------------


def serve_keys() -> dict[str, tuple[str, str, Option, Any]]:
    """Each key of `[serve]`: the extension whose it is ("" for none), the member, its `Option` and its type."""
    from mcpd.extensions.serving import serve_options  # few files say anything of it

    found = {
        option.flag.removeprefix("--"): ("", name, option, kind) for name, (option, kind) in command_options().items()
    }
    for each in serve_options():
        found[each.option.flag.removeprefix("--")] = (each.id, each.name, each.option, each.kind)
    return found


def _serve_values(table: Mapping[str, Any], say: Any) -> dict[str, Any]:
    """The options by key, each as its type."""
    if not table:
        return {}
    known = serve_keys()
    values: dict[str, Any] = {}
    for key, given in table.items():
        if key not in known:
            say(("serve", key), _unknown(f"serve.{key}", key, list(known)))
            continue
        _, _, option, kind = known[key]
        try:
            values[key] = _serve_value(option, kind, given)
        except ValueError as error:
            say(("serve", key), f"serve.{key}: {error}, not {printable(given, 60)}")
    return values


def _serve_value(option: Option, kind: Any, given: Any) -> Any:
    """One option as its type. Raises ValueError that says what is expected."""
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
        raise ValueError("expected a list of texts")
    if isinstance(given, str):
        return given
    raise ValueError("expected a text")
