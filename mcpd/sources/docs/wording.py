"""How the tools over documents are called and described, unless mcpd.toml says it otherwise.

Descriptions are read by models. `{title}` in them is what the documents are called, and the name of another tool in
braces (`{read_page}`, or the name of its table) is its name for callers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Raw, Struct, structs

from mcpd.protocol.types.tools import CallToolResult, Tool
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.entries import ToolEntry
from mcpd.server.registry.listing import ActiveExtensions
from mcpd.server.registry.tools import ToolMeta
from mcpd.sources.tables import DOING, ArgumentTable, Doing, ToolTable

if TYPE_CHECKING:
    from mcpd.protocol.wire.headers import Mirror


MOST_HITS = 20
"""How many hits one answer has at most."""


class Argument(Struct, frozen=True):
    """One argument as callers see it. `hidden` ones they cannot set."""

    name: str
    kind: Any
    description: str
    is_required: bool = False
    default: Any = None
    hidden: bool = False


class Wording(Struct, frozen=True, kw_only=True):
    """One tool as callers see it."""

    does: Doing
    name: str
    title: str
    description: str
    arguments: dict[str, Argument]
    """By the names that the code knows them under."""
    section: str | None = None
    """The only section that it sees."""
    result: dict[str, Any] = {}
    """Its result under other names, see `shapes`."""


_Limit = Annotated[int, Meta(ge=1, le=MOST_HITS)]
_Kind = Literal["markdown", "mdx", "rst", "html", "text", "notebook", "pdf"]
_SECTION = Argument("section", str | None, "Only in this section, as {list_sections} names it.")
_CURSOR = Argument("cursor", str | None, "The next_cursor of the answer before, for what comes after it.")

ARGUMENTS: dict[Doing, tuple[Argument, ...]] = {
    "search": (
        Argument(
            "query", str, 'Words to find, best few and telling ones; "in quotes" a phrase, word* a beginning.', True
        ),
        _SECTION,
        Argument("kind", _Kind | None, "Only pages of this kind."),
        Argument("limit", _Limit, "How many pages to give.", default=5),
        _CURSOR,
    ),
    "list_sections": (),
    "read_section": (
        Argument("section", str, "The section, as {list_sections} names it.", True),
        _CURSOR,
    ),
    "read_page": (
        Argument(
            "path", str, "The page's path as other answers give it, or its URI or URL; #heading may follow.", True
        ),
        Argument("heading", str | None, "Only what stands below this heading: its title or its anchor."),
        _CURSOR,
    ),
    "find_code": (
        Argument("words", str, "What the example is to show: words of it, or of the text around it.", True),
        Argument("language", str | None, "Only code in this language, as bash or python."),
        _SECTION,
        Argument("limit", _Limit, "How many examples to give.", default=5),
        _CURSOR,
    ),
    "look_up": (
        Argument("name", str, "The name of a command, option, setting, function or term.", True),
        _SECTION,
        Argument("limit", _Limit, "How many places to give.", default=3),
    ),
}
"""What each kind of tool takes, in order."""

_NAMES: dict[Doing, tuple[str, str, str]] = {
    "search": (
        "search_docs",
        "Search the documents",
        "Search {title}, by words, and get the pages that fit best: path, title, section, the heading at the best "
        "place and a snippet of it. Misspelt words are corrected. Start here; then read with {read_page}.",
    ),
    "list_sections": (
        "list_docs_sections",
        "List the sections",
        "List the sections of {title} with the number of pages in each, to see what there is.",
    ),
    "read_section": (
        "read_docs_section",
        "Read a section",
        "Read all pages of one section of {title} in order, title, path and text of each. Long ones come in parts.",
    ),
    "read_page": (
        "read_docs_page",
        "Read a page",
        "Read a page of {title} as Markdown, or what stands below one of its headings. Long ones come in parts.",
    ),
    "find_code": (
        "find_docs_code",
        "Find code examples",
        "Find code examples in {title}, by what they show and by language, with the line that introduces each.",
    ),
    "look_up": (
        "look_up_in_docs",
        "Look up a command or setting",
        "Look up one command, option, setting or function by its name in {title}: the text that describes it, and "
        "where that stands. For questions in words use {search}.",
    ),
}


def wordings(tables: dict[str, ToolTable], title: str) -> list[Wording]:
    """The tools that there are: those by default, as the tables change them, and those that they add."""
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
        argument.name: _said(argument, getattr(table.arguments, argument.name)) for argument in ARGUMENTS[doing]
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


def _said(argument: Argument, said: ArgumentTable | str | None) -> Argument:
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
    """With the names of tools for the braces; where there is no such tool, with those of what it does."""
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
    """A tool of which the name is known, and what makes it."""

    def __init__(self, name: str, make: Callable[[], ToolEntry], *, requires: str | None = None) -> None:
        self.key = name
        self.requires = requires
        self._make = make
        self._made: ToolEntry | None = None

    def made(self) -> ToolEntry:
        """The tool itself. Raises what making it raises."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def extension_meta(self) -> Mapping[str, ToolMeta]:
        """What extensions add to it; nothing before it was first listed or called, which nobody has seen."""
        return {} if self._made is None else self._made.extension_meta

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """The arguments that HTTP headers repeat."""
        return self.made().mirrors

    def listed(self, active: ActiveExtensions) -> Tool:
        """The tool as lists show it."""
        return self.made().listed(active)

    def run(self, arguments: Raw, exchange: Exchange) -> Coroutine[Any, Any, CallToolResult]:
        """Call it."""
        return self.made().run(arguments, exchange)
