"""Tools for hosts that show too much or too little: a search instead of the list of tools, and resources as tools.

The search is for hosts that cannot search themselves. `tools/list` then has the pinned tools and three others, and
every tool can still be called by its name. A call through `call_tool` becomes the call of that tool before rules,
scopes, tasks and middleware see it. Clients find only tools that they could list.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from msgspec import Raw, Struct, structs
from msgspec.json import Decoder, decode, encode

from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.types.base import NO_JSON, PageParams, RawResult, Result
from mcpd.protocol.types.features import (
    CallToolParams,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from mcpd.server.context.exchange import Exchange, Handler, finished
from mcpd.server.registry.tools import failed
from .base import Extension, ExtensionHost
from .tool_search import ToolIndex

R = TypeVar("R", bound=Result)

_MOST_INDEXES: Final = 4
_MOST_PAGES: Final = 1000
_MOST_FOUND: Final = 20
_PINNED: Final = frozenset(("anthropic/alwaysLoad", "ui", "ui/resourceUri"))
# Outside of all other wrappers.
_RANK: Final = 9


class _Found(Struct, kw_only=True):
    # The arguments of all these tools.
    query: str = ""
    limit: int = 5
    name: str = ""
    arguments: Raw = Raw(b"{}")
    uri: str = ""
    cursor: str | None = None


_decode = Decoder(_Found).decode


class _Read(Result, kw_only=True):
    # A result of `resources/read`, decoded: msgspec cannot tell the structs of contents apart.
    contents: list[Any]


def _tool(name: str, description: str, *required: str, reads: bool = True, **optional: Any) -> Tool:
    properties = {each: {"type": "object" if each == "arguments" else "string"} for each in required} | optional
    schema = {"type": "object", "properties": properties, "required": list(required)}
    hints = ToolAnnotations(read_only_hint=reads)
    return Tool(name=name, description=description, input_schema=schema, annotations=hints)


_LIMIT = {"type": "integer", "minimum": 1, "maximum": _MOST_FOUND, "default": 5}
_SEARCH = (
    _tool("search_tools", "Find tools by words of their name, description and arguments. Most tools are not listed. "
          "Returns their names, descriptions and schemas.", "query", limit=_LIMIT),
    _tool("call_tool", "Call a tool that search_tools has found.", "name", "arguments", reads=False),
    _tool("call_read_only_tool", "Call a tool that search_tools has found and whose annotations have readOnlyHint.",
          "name", "arguments"),
)  # fmt: skip
_RESOURCES = (
    _tool("list_resources", "List the resources of this server, and the templates of their URIs.",
          cursor={"type": "string"}),
    _tool("read_resource", "Read a resource by its URI.", "uri"),
)  # fmt: skip


class Catalogue(Extension):
    """For `Server(extensions=[…])`: a search of tools, and resources as tools.

    `tool_search` is "off", "always" or "auto:N", which searches if a client could list more than N tools. Listed are
    then tools with `always_load=True`, tools of MCP Apps, and the server's own tools if it has others from mounts or
    documents. Raises ConfigurationError.
    """

    is_operators = True

    def __init__(self, *, tool_search: str = "off", resources_as_tools: bool = False) -> None:
        super().__init__("mcpd/catalogue")
        kind, _, number = tool_search.partition(":")
        if tool_search not in ("off", "always") and not (kind == "auto" and number.isdecimal()):
            raise ConfigurationError(f"tool_search must be off, always or auto:N, such as auto:50, not {tool_search!r}")
        self._most = int(number) if number else 0
        self._searches = tool_search != "off"
        self._resources = resources_as_tools
        self._list: Handler | None = None
        # By the identity of the lists in the pages, which are the same objects until a list changes.
        self._indexes: dict[tuple[int, ...], tuple[list[Any], ToolIndex, ListToolsResult]] = {}

    def bind(self, server: ExtensionHost) -> None:
        """Add it to a server. Clients do not see it."""
        self.server = server
        server.catalog.offer("tools")
        server.handlers.wrap(self._wrapped, rank=_RANK)

    def admits(self, client: ClientIdentity) -> bool:
        """It is for all clients."""
        return True

    def _wrapped(self, method: str, handler: Handler) -> Handler:
        if method == "tools/list":
            self._list = handler

            async def list_tools(exchange: Exchange, params: PageParams) -> ListToolsResult:
                if params.cursor is not None and not self._searches:
                    return await finished(handler(exchange, params))  # type: ignore[no-any-return]
                return (await self._listed(exchange))[2]

            return list_tools
        if method != "tools/call":
            return handler

        def call_tool(exchange: Exchange, params: CallToolParams) -> Any:
            run = self._own(params.name)
            return handler(exchange, params) if run is None else self._run(run, handler, exchange, params)

        return call_tool

    def _own(self, name: str) -> Callable[..., Coroutine[Any, Any, CallToolResult]] | None:
        if self._searches and name in ("search_tools", "call_tool", "call_read_only_tool"):
            return self._search if name == "search_tools" else self._call
        if self._resources and name in ("list_resources", "read_resource"):
            return self._list_resources if name == "list_resources" else self._read
        return None

    async def _run(
        self, run: Callable[..., Coroutine[Any, Any, Any]], handler: Handler, exchange: Exchange, params: CallToolParams
    ) -> Any:
        try:
            found = _decode(params.arguments if params.arguments is not NO_JSON else b"{}")
        except MALFORMED as error:
            return failed(f"{params.name}: {explain(error)}")
        if run == self._call:
            return await run(handler, exchange, params, found)
        try:
            return await run(handler, exchange, params, found)
        except (McpdError, KeyError) as error:  # the handler is missing if a server never had resources
            return failed(f"{params.name}: {error if isinstance(error, McpdError) else 'this server has no resources'}")

    # -- tools -------------------------------------------------------------------------------

    async def _listed(self, exchange: Exchange) -> tuple[list[Any], ToolIndex, ListToolsResult]:
        # Return the pages that this client would see, the index of the tools in them, and the list that it gets.
        assert self._list is not None
        pages: list[Any] = [await finished(self._list(exchange, PageParams()))]
        while (
            self._searches and len(pages) < _MOST_PAGES and (cursor := _typed(pages[-1], ListToolsResult).next_cursor)
        ):
            pages.append(await finished(self._list(exchange, PageParams(cursor=cursor))))
        key = tuple(id(page.raw if isinstance(page, RawResult) else page.tools) for page in pages)
        found = self._indexes.get(key)
        if found is None:
            while len(self._indexes) >= _MOST_INDEXES:
                del self._indexes[next(iter(self._indexes))]
            found = self._indexes[key] = (pages, *self._divided([_typed(page, ListToolsResult) for page in pages]))
        return found

    def _divided(self, pages: list[ListToolsResult]) -> tuple[ToolIndex, ListToolsResult]:
        tools = [tool for page in pages for tool in page.tools]
        searched: list[Tool] = []
        if self._searches and len(tools) > self._most:
            assert self.server is not None
            owner_of = self.server.catalog.tools.owner_of
            own = {tool.name for tool in tools if owner_of(tool.name) is None}
            own = own if len(own) < len(tools) else set()
            # Tools with a View are called by hosts directly, and some of them by the View only.
            searched = [tool for tool in tools if tool.name not in own and _PINNED.isdisjoint(tool.meta or ())]
        left_out = {tool.name for tool in searched}
        added = [*(_SEARCH if searched else ()), *(_RESOURCES if self._resources else ())]
        listed = [tool for tool in tools if tool.name not in left_out]
        cursor = pages[-1].next_cursor
        return ToolIndex(searched), structs.replace(pages[0], tools=[*listed, *added], next_cursor=cursor)

    async def _search(self, handler: Handler, exchange: Exchange, params: Any, given: _Found) -> CallToolResult:
        _, index, _ = await self._listed(exchange)
        found = index.search(given.query, min(max(given.limit, 1), _MOST_FOUND))
        kept = ("name", "title", "description", "input_schema", "annotations")
        return _structured({"tools": [
            {name.replace("input_schema", "inputSchema"): value for name in kept
             if (value := getattr(tool, name)) is not None} for tool in found
        ]})  # fmt: skip

    async def _call(self, handler: Handler, exchange: Exchange, params: CallToolParams, given: _Found) -> Any:
        _, index, _ = await self._listed(exchange)
        tool = index.by_name.get(given.name)
        if tool is None:
            return failed(f"{given.name}: search_tools finds no tool of this name; call listed tools directly")
        reads = tool.annotations is not None and tool.annotations.read_only_hint is True
        if params.name == "call_read_only_tool" and not reads:
            return failed(f"{given.name} is not read-only: use call_tool")
        _become(exchange, {"name": given.name, "arguments": given.arguments})
        return await finished(handler(exchange, structs.replace(params, name=given.name, arguments=given.arguments)))

    # -- resources ---------------------------------------------------------------------------

    async def _ask(self, method: str, exchange: Exchange, params: Any, kind: type[R]) -> R:
        assert self.server is not None
        _become(exchange, {name: value for name in ("uri", "cursor") if (value := getattr(params, name, None))})
        return _typed(await finished(self.server.handlers[method](exchange, params)), kind)

    async def _list_resources(self, handler: Handler, exchange: Exchange, params: Any, given: _Found) -> CallToolResult:
        page = await self._ask("resources/list", exchange, PageParams(cursor=given.cursor), ListResourcesResult)
        found: dict[str, Any] = {"resources": page.resources}
        if page.next_cursor is not None:
            found["nextCursor"] = page.next_cursor
        if given.cursor is None:
            templates = await self._ask("resources/templates/list", exchange, PageParams(), ListResourceTemplatesResult)
            found["resourceTemplates"] = templates.resource_templates
        return _structured(found)

    async def _read(self, handler: Handler, exchange: Exchange, params: Any, given: _Found) -> CallToolResult:
        read = await self._ask("resources/read", exchange, ReadResourceParams(uri=given.uri), _Read)
        content: list[ContentBlock] = []
        for each in read.contents:
            text = each.get("text") if isinstance(each, dict) else getattr(each, "text", None)
            content.append(TextContent(text) if isinstance(text, str) else EmbeddedResource(each))
        return CallToolResult(content=content)


def _become(exchange: Exchange, members: dict[str, Any]) -> None:
    # Replace the params as received, which mounts pass on. `call.params` stays: it identifies the rounds of a request.
    others = decode(exchange.call.raw, type=dict[str, Raw]) if exchange.call.raw else {}
    left = {name: others[name] for name in ("_meta", "task", "inputResponses", "requestState") if name in others}
    exchange.call.source = Raw(encode({**left, **members}))


def _typed(result: Any, kind: type[R]) -> R:
    # A server that is mounted alone sends its results as bytes.
    return decode(result.raw, type=kind) if isinstance(result, RawResult) else result


def _structured(data: dict[str, Any]) -> CallToolResult:
    written = encode(data)
    return CallToolResult(content=[TextContent(written.decode())], structured_content=Raw(written))
