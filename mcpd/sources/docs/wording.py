"""The names and descriptions of the tools over documents, and tools that are created when first needed.

Models read the descriptions. In them `{title}` is replaced by the title of the documents, and the name of an operation
or table in braces, such as `{read_page}`, by the name of that tool.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Raw, Struct, structs

from mcpd.protocol.types.features import CallToolResult, Tool
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.entries import ActiveExtensions, ToolEntry, ToolMeta
from mcpd.sources.tables import DOING, ArgumentTable, Doing, ToolTable
from .page import Kind

if TYPE_CHECKING:
    from mcpd.protocol.wire.headers import Mirror


MAX_HITS = 20
"""How many results one answer has at most."""


class Argument(Struct, frozen=True):
    """One argument for callers, who cannot set `hidden` ones."""

    name: str
    kind: Any
    description: str
    is_required: bool = False
    default: Any = None
    hidden: bool = False


class Wording(Struct, frozen=True, kw_only=True):
    does: Doing
    name: str
    title: str
    description: str
    arguments: dict[str, Argument]
    """By their names in the code."""
    section: str | None = None
    """The only section that it uses."""
    result: dict[str, Any] = {}
    """The table that changes the result, see `shape_of`."""


_Limit = Annotated[int, Meta(ge=1, le=MAX_HITS)]
_SECTION = Argument("section", str | None, "Search only this section, named as in {list_sections}.")
_CURSOR = Argument("cursor", str | None, "The next_cursor of the previous answer, to get the next part.")

ARGUMENTS: dict[Doing, tuple[Argument, ...]] = {
    "search": (
        Argument("query", str, 'A few characteristic words; use "quotes" for a phrase and word* for a prefix.', True),
        _SECTION,
        Argument("kind", Kind | None, "Only pages in this format."),
        Argument("limit", _Limit, "How many pages to return.", default=5),
        _CURSOR,
    ),
    "list_sections": (),
    "read_section": (
        Argument("section", str, "The section, named as in {list_sections}.", True),
        _CURSOR,
    ),
    "read_page": (
        Argument(
            "path", str, "The path of the page as in other answers, its URI or its URL; #heading may follow.", True
        ),
        Argument("heading", str | None, "Only the section with this heading: its title or anchor."),
        _CURSOR,
    ),
    "find_code": (
        Argument("words", str, "Words of the example or of the text around it.", True),
        Argument("language", str | None, "Only code in this language, such as bash or python."),
        _SECTION,
        Argument("limit", _Limit, "How many examples to return.", default=5),
        _CURSOR,
    ),
    "look_up": (
        Argument("name", str, "The name of a command, option, setting, function or term.", True),
        _SECTION,
        Argument("limit", _Limit, "How many places to return.", default=3),
    ),
}

_NAMES: dict[Doing, tuple[str, str, str]] = {
    "search": (
        "search_docs",
        "Search the documents",
        "Search {title} for words and get the best pages: path, title, section, and the heading and a snippet of the "
        "best match. Misspelt words are corrected. Start here, then read pages with {read_page}.",
    ),
    "list_sections": (
        "list_docs_sections",
        "List the sections",
        "List the sections of {title} with the number of pages in each.",
    ),
    "read_section": (
        "read_docs_section",
        "Read a section",
        "Read all pages of one section of {title} in order, with titles and paths. Long sections come in parts.",
    ),
    "read_page": (
        "read_docs_page",
        "Read a page",
        "Read a page of {title}, or one section of it, as Markdown. Long pages come in parts.",
    ),
    "find_code": (
        "find_docs_code",
        "Find code examples",
        "Find code examples in {title} by words and language, with the line that introduces each.",
    ),
    "look_up": (
        "look_up_in_docs",
        "Look up a command or setting",
        "Look up one command, option, setting or function by its name in {title} and get the text that describes it, "
        "with its location. For questions in words, use {search}.",
    ),
}


def wordings(tables: dict[str, ToolTable], title: str) -> list[Wording]:
    """Return the tools: the default ones with the changes in the tables, and additional ones from the tables."""
    chosen: list[tuple[str, Doing, ToolTable]] = [(doing, doing, tables.get(doing, ToolTable())) for doing in DOING]
    chosen += [(key, table.does, table) for key, table in tables.items() if key not in DOING and table.does]
    found = {key: _worded(key, table.does or doing, table) for key, doing, table in chosen if table.enabled}

    names = {"title": title, "read_page": "resources/read"}
    names |= {wording.does: wording.name for wording in reversed(found.values())}
    names |= {key: wording.name for key, wording in found.items()}
    return [_filled(wording, names) for wording in found.values()]


def _worded(key: str, doing: Doing, table: ToolTable) -> Wording:
    name, title, description = _NAMES[doing]
    arguments = {
        argument.name: _changed_argument(argument, getattr(table.arguments, argument.name))
        for argument in ARGUMENTS[doing]
    }
    if table.section is not None:
        arguments.pop("section", None)
    return Wording(
        does=doing,
        name=table.name or (name if key == doing else key),
        title=table.title or title,
        description=table.description or description,
        arguments=arguments,
        section=table.section,
        result=table.result,
    )


def _changed_argument(argument: Argument, said: ArgumentTable | str | None) -> Argument:
    if said is None:
        return argument
    if isinstance(said, str):
        return structs.replace(argument, name=said)
    default = argument.default if said.default is None else said.default
    return structs.replace(
        argument,
        name=said.name or argument.name,
        description=said.description or argument.description,
        default=default,
        hidden=said.hidden and not argument.is_required,
    )


def _filled(wording: Wording, names: dict[str, str]) -> Wording:
    # Replace the names in braces. If there is no such tool, the name of the operation is used.
    known: dict[str, str] = {doing: doing.replace("_", " ") for doing in DOING}
    known |= names
    arguments = {
        name: structs.replace(argument, description=_fill(argument.description, known))
        for name, argument in wording.arguments.items()
    }
    return structs.replace(wording, description=_fill(wording.description, known), arguments=arguments)


def _fill(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


class LazyTool(ToolEntry):
    """A tool that has only a name until it is listed or called."""

    def __init__(self, name: str, make: Callable[[], ToolEntry], *, requires: str | None = None) -> None:
        self.key = name
        self.requires = requires
        self._make = make
        self._made: ToolEntry | None = None

    def made(self) -> ToolEntry:
        """Return the tool itself. Raises what creating it raises."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def extension_meta(self) -> Mapping[str, ToolMeta]:
        """What extensions add to it; empty before it is first listed or called."""
        return {} if self._made is None else self._made.extension_meta

    @property
    def mirrors(self) -> Sequence[Mirror]:
        return self.made().mirrors

    def listed(self, active: ActiveExtensions) -> Tool:
        return self.made().listed(active)

    def run(self, arguments: Raw, exchange: Exchange) -> Coroutine[Any, Any, CallToolResult]:
        return self.made().run(arguments, exchange)
