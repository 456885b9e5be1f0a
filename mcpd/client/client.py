"""`Client`: one method for each thing that a server can be asked, in every protocol version.

Composition only: the rules are in `session`, waiting in `connection`, the server's questions in `callbacks`.
Spec: 2026-07-28 server/*, basic/patterns/{mrtr,subscriptions}; 2025-11-25 for the legacy handshake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, Self, TypeVar, overload

from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder
from msgspec.structs import replace

from mcpd import __version__
from mcpd.client.auth.auth_option import Auth
from mcpd.client.callbacks import Callbacks, capabilities
from mcpd.client.channels import ChannelWatcher
from mcpd.client.http.options import Headers, HttpOptions
from mcpd.client.limits import ClientLimits, Faults
from mcpd.client.link import ServerLink
from mcpd.client.output_schemas import ResultChecks
from mcpd.client.results import plain_value, read_list, typed_value
from mcpd.client.session import ClientSession, OnProgress
from mcpd.client.target import Target
from mcpd.client.tool_function import AwaitedToolFunction
from mcpd.errors import (
    ConfigurationError,
    HeaderMismatch,
    LocalProtocolError,
    ProtocolError,
    RemoteError,
    ResultMismatch,
)
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.types.base import (
    CacheableResult,
    Implementation,
    ListChanged,
    LogLevel,
    ResourcesCapability,
    ServerCapabilities,
)
from mcpd.protocol.types.content import BlobResourceContents, TextResourceContents
from mcpd.protocol.types.interaction import (
    CompleteParams,
    CompleteResult,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)
from mcpd.protocol.types.prompts import GetPromptResult, Prompt
from mcpd.protocol.types.resources import ReadResourceResult, Resource, ResourceTemplate
from mcpd.protocol.types.tools import CallToolResult, Tool
from mcpd.protocol.versions import table

log = logging.getLogger("mcpd.client")

T = TypeVar("T")
_NO_CALLBACKS = Callbacks()
_DEFAULT_LIMITS = ClientLimits()


class ServerDetails:
    """What a client knows of its server once a protocol version is negotiated."""

    def _negotiated(self) -> ClientSession:
        raise NotImplementedError

    @property
    def version(self) -> str:
        """The negotiated protocol version. Raises LocalProtocolError if the client is not open."""
        version = self._negotiated().version
        if version is None:
            raise LocalProtocolError("the client is not open")
        return version.name

    @property
    def is_modern(self) -> bool:
        """Whether the negotiated version has no handshake (2026-07-28 and later)."""
        version = self._negotiated().version
        return version is not None and version.is_modern

    @property
    def server_info(self) -> Implementation | None:
        """The name and version of the server, if it sent them."""
        return self._negotiated().server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capabilities of the server."""
        return self._negotiated().server_capabilities

    @property
    def faults(self) -> Faults:
        """The log of protocol violations of the server."""
        return self._negotiated().faults

    @property
    def instructions(self) -> str | None:
        """The server's instructions for the model."""
        return self._negotiated().instructions


class ToolCalls:
    """Calls of tools by name, for one server or a group of them."""

    async def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        raise NotImplementedError

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> CallToolResult:
        raise NotImplementedError

    @overload
    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        returns: type[T],
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
        **named: Any,
    ) -> T: ...

    @overload
    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        returns: UnionType | None = None,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
        **named: Any,
    ) -> Any: ...

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        returns: type[Any] | UnionType | None = None,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
        **named: Any,
    ) -> Any:
        """What a tool returned: `await client.call("forecast", city="Bern", returns=Forecast)`.

        `returns` is any type that JSON can be read as, such as a dataclass, a list of them or a pydantic model; without
        it the value is as JSON has it, or a text if that is all there is. Arguments that are called like an option
        here go in the mapping. Raises ToolError with its text if the tool failed, ResultMismatch if what it gave is
        not of that type, RemoteError for calls that were none, ConfigurationError for a type that no JSON can be.
        """
        result = await self.call_tool(tool, {**(arguments or {}), **named}, on_progress=on_progress, timeout=timeout)
        return plain_value(result) if returns is None else typed_value(tool, result, returns)

    async def tool_functions(
        self, *names: str, timeout: float | None | Literal["default"] = "default"
    ) -> list[AwaitedToolFunction]:
        """The tools as coroutine functions with types and docstrings, for agent libraries: see `ToolFunction`.

        All that models may call, or those of these `names`, in their order; `timeout` holds for each call. Raises
        ConfigurationError for a name that no tool has.
        """
        from mcpd.client.tool_function import awaited_functions

        def call(name: str, arguments: dict[str, Any]) -> Coroutine[Any, Any, CallToolResult]:
            return self.call_tool(name, arguments, timeout=timeout)

        return awaited_functions(await self.list_tools(), names, call)


class Client(ServerLink, ServerDetails, ToolCalls):
    """A connection to one server: `async with Client(target) as client:`.

    `target` is a `Server` of this process; a text or path (a file, a URL, `unix:/path`, `mcp.json:NAME`,
    `claude-code:NAME`: see docs/targets.md); a command as a list; or an open channel. `headers` are said with every
    HTTP request and at the start of a WebSocket, and `http` is what else there is to say of how to reach a URL.
    `extensions` are the ones this client has, by id; `version` fixes the protocol version, None agrees on the
    newest in common. `timeout` is how many seconds a request waits without a sign of life, None for ever.
    `limits` is how much the server may take: see `ClientLimits`. Lists and resources are kept for as long as the server
    says that they are fresh, unless `cache` is False (with a function as `headers`, which may speak for several users,
    only what is the same for all); `fresh=True` asks for one of them in any case. A connection that
    has ended by itself is opened anew for the next request, unless `reconnect` is False: see docs/targets.md.
    What a tool gives that was listed is held against its output schema (with `mcpd-server[schema]`), unless
    `check_results` is False. What the server does not offer is not asked for, but by `request`: LocalProtocolError.
    `auth` lets it in where a login is wanted: a token, a function that gives one, `OAuth` or a grant for programs of
    `mcpd.client.auth`; without it the login that `mcpd login URL` has left is used, if there is one.
    `watcher` is told of each frame, both ways, before it is passed on.
    """

    def __init__(
        self,
        target: Target,
        callbacks: Callbacks = _NO_CALLBACKS,
        *,
        info: Implementation | None = None,
        extensions: Mapping[str, Any] | None = None,
        version: str | None = None,
        timeout: float | None = 60.0,
        limits: ClientLimits = _DEFAULT_LIMITS,
        cache: bool = True,
        reconnect: bool = True,
        check_results: bool = True,
        headers: Headers | None = None,
        http: HttpOptions | None = None,
        watcher: ChannelWatcher | None = None,
        auth: Auth | None = None,
    ) -> None:
        if version is not None and version not in table.SUPPORTED:
            raise ConfigurationError(f"protocol version {version!r}: there are {', '.join(table.SUPPORTED)}")
        super().__init__(
            target,
            callbacks,
            info or _OURSELVES,
            capabilities(callbacks, extensions),
            limits,
            wanted=version,
            timeout=timeout,
            keeps_results=cache,
            reconnects=reconnect,
            http=http if headers is None else replace(http or HttpOptions(), headers=headers),
            watcher=watcher,
            auth=auth,
        )
        self._checks = ResultChecks(self._faults) if check_results else None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _negotiated(self) -> ClientSession:
        return self._session

    # ------------------------------------------------------------------------------------------ tools

    async def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """All tools, from all pages; none if the server has none to offer."""
        return (await self.list_tools_as_sent(fresh=fresh))[0]

    async def list_tools_as_sent(self, *, fresh: bool = False) -> tuple[list[Tool], list[Raw]]:
        """All tools, and beside them the entries as the server wrote them, those too that cannot be read."""
        entries: list[Raw] = []
        if self.server_capabilities.tools is None:
            return [], entries
        tools = await self._list("tools/list", "tools", Tool, fresh=fresh, entries=entries)
        self._harmless = frozenset(tool.name for tool in tools if _is_harmless(tool))
        if self._checks is not None:
            self._checks.learn(tools)
        headings = self._session.headings
        return (tools if headings is None else headings.learn(tools)), entries

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> CallToolResult:
        """Call a tool. A tool that failed gives a result with `is_error`; RemoteError is for calls that were none.

        Raises ResultMismatch for a result that is not what the tool's output schema says; it has the result.
        """
        if self._session.server_capabilities.tools is None:
            self._needs("tools", "tools/call")
        params = {"name": name, "arguments": {} if arguments is None else arguments}
        seconds = self.timeout if timeout == "default" else timeout
        try:
            # As `_ask`, without a coroutine more on the way of each call.
            raw = await self._send("tools/call", params, seconds, on_progress)
            era = self._era
            if era is not None and not era.is_complete(raw):
                raw = await self._ask_on("tools/call", params, raw, seconds, on_progress)
        except RemoteError as error:
            if error.code != HeaderMismatch.code or self._session.headings is None:
                raise
            # Spec: 2026-07-28 streamable-http, client behavior: look for changes of the schema, then say it again.
            await self.list_tools(fresh=True)
            raw, _ = await self._ask("tools/call", params, on_progress, timeout)
        result = _read("tools/call", CallToolResult, raw)
        checks = self._checks
        if checks is not None and checks.listed and (problem := checks.problem(name, result)) is not None:
            # The tool may be another one since it was listed.
            await self.list_tools(fresh=True)
            if (problem := checks.problem(name, result)) is not None:
                raise ResultMismatch(name, problem, result)
        return result

    # -------------------------------------------------------------------------------------- resources

    async def list_resources(self, *, fresh: bool = False) -> list[Resource]:
        """All resources, from all pages."""
        if not self._has_resources:
            return []
        return await self._list("resources/list", "resources", Resource, fresh=fresh)

    async def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """All resource templates, from all pages."""
        if not self._has_resources:
            return []
        return await self._list("resources/templates/list", "resourceTemplates", ResourceTemplate, fresh=fresh)

    async def read_resource(self, uri: str, *, fresh: bool = False) -> ReadResourceResult:
        """What a resource holds."""
        self._needs("resources", "resources/read")
        raw = await self._kept("resources/read", uri, {"uri": uri}, fresh=fresh)
        found = _read("resources/read", _ReadResult, raw)
        return ReadResourceResult(
            result_type=found.result_type,
            meta=found.meta,
            ttl_ms=found.ttl_ms,
            cache_scope=found.cache_scope,
            contents=[_contents(entry) for entry in found.contents],
        )

    async def subscribe(self, uri: str) -> None:
        """Hear of changes of a resource, through `Callbacks.resource_updated`."""
        self._needs("resources", "resources/subscribe", "subscribe")
        await (await self._ready()).watch(uri, self.timeout)
        self._wishes.uris.add(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Hear of them no longer."""
        self._wishes.uris.discard(uri)
        await (await self._ready()).unwatch(uri, self.timeout)

    # ---------------------------------------------------------------------------- prompts, completion

    async def list_prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """All prompts, from all pages."""
        if not self.server_capabilities.prompts:
            return []
        return await self._list("prompts/list", "prompts", Prompt, fresh=fresh)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """A prompt, filled in."""
        self._needs("prompts", "prompts/get")
        params = {"name": name, **({"arguments": dict(arguments)} if arguments else {})}
        return _read("prompts/get", GetPromptResult, await self.request("prompts/get", params))

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        known: Mapping[str, str] | None = None,
    ) -> CompleteResult:
        """Suggestions for an argument of which `value` is typed so far; `known` are the others."""
        self._needs("completions", "completion/complete")
        params = CompleteParams(
            ref=ref,
            argument=CompletionArgument(name=argument, value=value),
            context=CompletionContext(arguments=dict(known)) if known else None,
        )
        return _read("completion/complete", CompleteResult, await self.request("completion/complete", params))

    # ------------------------------------------------------------------------------------------- rest

    async def ping(self) -> None:
        """Ask whether the server is there; modern versions have no ping, so that it is asked what it is."""
        await self.request(self._agreed().ping_method)

    async def set_log_level(self, level: LogLevel) -> None:
        """Hear of log messages of this level and above, through `Callbacks.log`."""
        if method := self._agreed().log_method:
            self._needs("logging", method)
        await (await self._ready()).set_log_level(level, self.timeout)
        self._wishes.log_level = level

    def roots_changed(self) -> None:
        """Tell the server that `Callbacks.roots` gives others now; modern servers ask when they need them."""
        self._agreed().roots_changed()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | Struct | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> Raw:
        """Any request; the raw result. What the server asks in between is answered through the callbacks.

        It is sent whatever the server offers. Raises RemoteError if the server answers with an error, ProtocolError if
        its answer cannot be read, RequestTimeout, ConnectionLost.
        """
        return (await self._ask(method, params, on_progress, timeout))[0]

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any] | Struct | Raw | None,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> tuple[Raw, bool]:
        """The result of `request`, and whether it came in one round: what depends on answers is not kept."""
        seconds = self.timeout if timeout == "default" else timeout
        first = await self._send(method, params, seconds, on_progress)
        if self._agreed().is_complete(first):
            return first, True
        return await self._ask_on(method, params, first, seconds, on_progress), False

    async def _ask_on(
        self, method: str, params: Any, first: Raw, seconds: float | None, on_progress: OnProgress | None
    ) -> Raw:
        """The complete result of a request, given what came of its first round."""

        def ask(params: Any) -> Coroutine[Any, Any, Raw]:
            return self._send(method, params, seconds, on_progress)

        return await self._agreed().complete(method, ask, params, first)

    async def _list(
        self, method: str, member: str, kind: type[T], *, fresh: bool, entries: list[Raw] | None = None
    ) -> list[T]:
        """Every page of a list, within the limits."""

        at = ""

        def ask(params: Any) -> Coroutine[Any, Any, Raw]:
            nonlocal at
            at = "" if params is None else f"cursor {params['cursor']}"
            return self._kept(method, at, params, fresh=fresh)

        try:
            return await read_list(ask, method, member, kind, self.limits, self._session.faults, entries)
        except RemoteError:
            # A cursor that is none any more: the pages before it are of another list.
            if self._cache is not None:
                self._cache.forget(method)
            if not at:
                raise

        # Spec: 2026-07-28 server/utilities/caching: "discard all cached pages and re-fetch from the beginning".
        if entries is not None:
            entries.clear()
        return await read_list(ask, method, member, kind, self.limits, self._session.faults, entries)

    async def _kept(self, method: str, parameter: str, params: Any, *, fresh: bool) -> Raw:
        """A result that is kept and still fresh, or the server's."""
        if self._cache is None or not self._agreed().has_hints:
            return await self.request(method, params)
        return await self._cache.get(method, parameter, lambda: self._ask(method, params), fresh=fresh)

    def _needs(self, capability: str, method: str, feature: str = "") -> None:
        """Spec: 2025-11-25 basic/lifecycle, operation: "Only use capabilities that were successfully negotiated".

        Raises LocalProtocolError for what the server does not offer; of one that is gone the next may.
        """
        found = getattr(self.server_capabilities, capability)
        is_offered = found is not None and (not feature or bool(getattr(found, feature)))
        if is_offered or self._agreed().connection.is_lost or self._session.version is None:
            return
        # In versions before 2025-03-26 servers that complete have no way to say so.
        if getattr(self._session.version.shape(_EVERYTHING), capability) is not None:
            what = f"{capability}.{feature}" if feature else capability
            raise LocalProtocolError(
                f"the server does not offer {what}, so {method} is not sent (Client.request sends it all the same)"
            )

    @property
    def _has_resources(self) -> bool:
        return self.server_capabilities.resources is not None


def _is_harmless(tool: Tool) -> bool:
    """Whether to call it twice is what to call it once is."""
    hints = tool.annotations
    return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


_EVERYTHING = ServerCapabilities(
    logging={}, completions={}, prompts=ListChanged(), resources=ResourcesCapability(), tools=ListChanged()
)
_OURSELVES = Implementation(name="mcpd", version=__version__)


class _ReadResult(CacheableResult, kw_only=True):
    """A `resources/read` result whose contents, text or blob without a tag, are told apart later."""

    contents: list[Raw]


def _contents(entry: Raw) -> TextResourceContents | BlobResourceContents:
    is_blob = "blob" in _read("resources/read", dict[str, Raw], entry)
    kind: type[Any] = BlobResourceContents if is_blob else TextResourceContents
    contents: TextResourceContents | BlobResourceContents = _read("resources/read", kind, entry)
    return contents


_decoder: Callable[..., Decoder[Any]] = cache(Decoder)


def _read(method: str, kind: type[T], raw: Raw) -> T:
    """A result as what it should be. Raises ProtocolError, naming the member that is wrong."""
    try:
        found: T
        try:
            found = _decoder(kind).decode(raw)
        except ValidationError:
            found = _decoder(kind, strict=False).decode(raw)  # "false" for false, as the official clients read it
        return found
    except MALFORMED as error:
        raise ProtocolError(f"The server's answer to {method} cannot be read: {explain(error)}") from None
