"""`[docs]` of mcpd.toml: which documents are served, and how the tools that search them are called."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from mcpd.sources.toml_patterns import ARGUMENT, BASE_URL, PAGES_URI, TOOL_NAME

Doing: TypeAlias = Literal["search", "list_sections", "read_section", "read_page", "find_code", "look_up"]
"""What a tool over documents can do."""

DOING: tuple[Doing, ...] = ("search", "list_sections", "read_section", "read_page", "find_code", "look_up")

PROFILES = ("terragrunt",)
"""The names of what `tools` may name: files of assets/docs_profiles/."""

_Name = Annotated[str, Meta(pattern=TOOL_NAME)]
_ArgumentName = Annotated[str, Meta(pattern=ARGUMENT)]


class _Table(Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """A table whose keys are known."""


class ArgumentTable(_Table, frozen=True):
    """One argument of a tool in other words."""

    name: Annotated[_ArgumentName | None, Meta(description="What callers name it.")] = None
    description: Annotated[str | None, Meta(description="What the model reads of it.")] = None
    default: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="The default of limit.")] = None
    hidden: Annotated[bool, Meta(description="Callers cannot set it.")] = False


_Argument: TypeAlias = Annotated[
    ArgumentTable | _ArgumentName | None, Meta(description="Its name for callers, or a table with more than that.")
]


class _ArgumentsTable(Struct, rename={}, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The arguments of all kinds of tools, under the names that they have by default."""

    query: _Argument = None
    section: _Argument = None
    kind: _Argument = None
    path: _Argument = None
    heading: _Argument = None
    words: _Argument = None
    language: _Argument = None
    name: _Argument = None
    limit: _Argument = None
    cursor: _Argument = None


class ToolTable(_Table, frozen=True):
    """One tool: `[docs.tools.NAME]`. NAME is what it does, or any name, where `does` says that."""

    enabled: Annotated[bool, Meta(description="False: there is no such tool.")] = True
    does: Annotated[Doing | None, Meta(description="What it does, where its table is not named by that.")] = None
    name: Annotated[_Name | None, Meta(description="Its name for callers.")] = None
    title: Annotated[str | None, Meta(description="Its name for people.")] = None
    description: Annotated[str | None, Meta(description="What the model reads of it.")] = None
    section: Annotated[
        Annotated[str, Meta(min_length=1)] | None, Meta(description="It sees this section alone, as reference/cli.")
    ] = None
    arguments: Annotated[_ArgumentsTable, Meta(description="Its arguments in other words.")] = _ArgumentsTable()
    result: Annotated[
        dict[str, Any], Meta(description="Its result under other names: each with the member that it is, or a table.")
    ] = {}


class DocsTable(_Table, frozen=True):
    """Documents that are resources and can be searched: `[docs]`."""

    enabled: Annotated[bool, Meta(description="False: its sub-folder is not looked at.")] = True
    folder: Annotated[str, Meta(min_length=1, description="The folder of the documents; . is this file's own.")] = (
        "docs"
    )
    title: Annotated[str | None, Meta(description="What the documents are called; by default the server's title.")] = (
        None
    )
    uri: Annotated[
        Annotated[str, Meta(pattern=PAGES_URI)] | None,
        Meta(description="What the URIs of its pages begin with, as handbook://; by default docs://NAME/."),
    ] = None
    include: Annotated[
        tuple[str, ...], Meta(description='Only these files are served, as "*.md" or "guides/*"; by default all.')
    ] = ()
    exclude: Annotated[tuple[str, ...], Meta(description='Files that are not served, as "drafts/*".')] = ()
    max_files: Annotated[
        int, Meta(ge=1, description="How many files are served; the others are named and left out.")
    ] = 50_000
    max_bytes: Annotated[int, Meta(ge=1, description="The largest file that is served, in bytes.")] = 16 * 1024 * 1024
    index: Annotated[
        str,
        Meta(min_length=1, description="Where the index is: disk (the user's cache), memory, or the path of a file."),
    ] = "disk"
    base_url: Annotated[
        Annotated[str, Meta(pattern=BASE_URL)] | None,
        Meta(description="Where the pages are published, with / at its end: results then have the page's URL."),
    ] = None
    tools: Annotated[
        str | dict[str, Any],
        Meta(description="A profile that comes with mcpd, as terragrunt, or a table for each tool."),
    ] = {}
