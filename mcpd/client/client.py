"""`Client`: one method for each request that a server may receive, in every protocol version.

Spec: 2026-07-28 server/*, basic/patterns/{mrtr,subscriptions}; 2025-11-25 for the legacy handshake.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import cache, partial
from pathlib import PurePath
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder
from msgspec.structs import asdict

from mcpd.errors import (
    HeaderMismatch,
    LocalProtocolError,
    MethodNotFound,
    ProtocolError,
    RemoteError,
    ResultMismatch,
)
from mcpd.protocol.envelope import Envelope
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.types.base import (
    CacheableResult,
    Implementation,
    ListChanged,
    LogLevel,
    ResourcesCapability,
    ServerCapabilities,
)
from mcpd.protocol.types.features import (
    BlobResourceContents,
    CallToolResult,
    GetPromptResult,
    Prompt,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
    Tool,
)
from mcpd.protocol.types.interaction import (
    CompleteParams,
    CompleteResult,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)
from .callbacks import complete_rounds, read_input_required
from .eras import LegacyEra
from .limits import Faults
from .link import ServerLink
from .results import plain_value, read_list, typed_value
from .session import ClientSession, OnProgress

if TYPE_CHECKING:
    from mcpd.protocol.types.events import EventType
    from .events import DeliveryMode, EventSubscription
    from .tasks import TaskHandle, Tasks
    from .tool_function import AwaitedToolFunction


T = TypeVar("T")


class ServerDetails:
    """The server's details, known once a protocol version is negotiated."""

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
        """Call a tool and return its value: `await client.call("forecast", city="Bern", returns=Forecast)`.

        `returns` is a type to convert the result to, such as a dataclass, a list of them, or a pydantic model. Without
        it, the JSON value is returned, or the text if there is no JSON value. Arguments with the name of an option
        belong in the mapping `arguments`. `timeout` is in seconds.

        Raises ToolError if the tool failed, ResultMismatch if the result does not fit `returns`, RemoteError if the
        call was refused, and ConfigurationError for a type that JSON cannot represent.
        """
        result = await self.call_tool(tool, {**(arguments or {}), **named}, on_progress=on_progress, timeout=timeout)
        return plain_value(result) if returns is None else typed_value(tool, result, returns)

    async def tool_functions(
        self, *names: str, timeout: float | None | Literal["default"] = "default"
    ) -> list[AwaitedToolFunction]:
        """Return the tools as coroutine functions with types and docstrings, for agent libraries: see `ToolFunction`.

        `names` selects tools, in that order; by default all tools that a model may call are returned. `timeout` is the
        `timeout` of each call. Raises ConfigurationError for a name that no tool has.
        """
        from .tool_function import awaited_functions

        def call(name: str, arguments: dict[str, Any]) -> Coroutine[Any, Any, CallToolResult]:
            return self.call_tool(name, arguments, timeout=timeout)

        return awaited_functions(await self.list_tools(), names, call)


class Client(ServerLink, ServerDetails, ToolCalls):
    """A connection to one server: `async with Client(target) as client:`.

    `target`: a `Server` of this process; a string or path (a file, a URL, `unix:/path`, `mcp.json:NAME`,
    `claude-code:NAME`: see docs/command-line.md); a command as a list; or an open channel.

    `callbacks`: functions that the server may call. `info`: the client's name and version.

    `extensions`: settings of the client's extensions, by id.

    `version`: the protocol version; None negotiates the newest common one.

    `timeout`: seconds that a request may take without progress; None for no limit.

    `limits`: how much the server may send: see `ClientLimits`.

    `cache`: whether to keep lists and resources for as long as the server says that they are fresh. If `headers` is a
    function, requests may belong to several users, and only public results are kept. `fresh=True` bypasses the cache.

    `reconnect`: whether to open a new connection for the next request when a connection was lost: see docs/client.md.

    `check_results`: whether to check results of listed tools against their output schema. Requires
    `mcpd-server[schema]`.

    `headers`: header fields of every HTTP request or of the WebSocket handshake. `http`: further options for URLs.

    `watcher`: receives every frame in both directions.

    `auth`: a token, a function that returns one, `OAuth` or another grant of `mcpd.client.auth`. By default, the login
    that `mcpd login URL` has stored is used.

    `webhook`: a `Receiver`, to which the server may send events.

    Methods raise LocalProtocolError for features that the server does not offer; `request` sends any request.
    """

    _started_tasks: Tasks | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _negotiated(self) -> ClientSession:
        return self._session

    # ------------------------------------------------------------------------------------------ tools

    async def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """Return all tools, from all pages; [] if the server has none. `fresh` bypasses the cache."""
        return (await self.list_tools_as_sent(fresh=fresh))[0]

    async def list_tools_as_sent(self, *, fresh: bool = False) -> tuple[list[Tool], list[Raw]]:
        """Return all tools, and all entries as the server sent them, including entries that cannot be read."""
        entries: list[Raw] = []
        if self.server_capabilities.tools is None:
            return [], entries
        tools = await self._list("tools/list", "tools", Tool, fresh=fresh, entries=entries)
        # Known only after the tools were listed; until then, no call is repeated.
        self._repeatable_tools = frozenset(tool.name for tool in tools if _is_repeatable(tool))
        tasks = {tool.name: tool.execution.task_support for tool in tools if tool.execution is not None}
        self._task_support = tasks if self._asks_for_tasks else {}
        if self._checks is not None:
            self._checks.set_tools(tools)
        headings = self._session.headings
        return (tools if headings is None else headings.set_tools(tools)), entries

    async def call_tool(
        self,
        /,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
        **files: PurePath | list[PurePath],
    ) -> CallToolResult:
        """Call a tool. `on_progress` receives progress, total and message; `timeout` is in seconds, None for no limit.

        If the server makes a task of the call, its result is awaited, and the task is cancelled if this call is
        cancelled. A `Path` for a parameter that takes a file sends the file; `files` are more such arguments. A tool
        that failed returns a result with `is_error`. Raises RemoteError if the call was refused or its task failed,
        TaskCancelled, and ResultMismatch, which has the result, if it does not fit the tool's output schema.
        """
        if self._session.server_capabilities.tools is None:
            self._require("tools", "tools/call")
        if files:
            arguments = {**(arguments or {}), **files}  # type: ignore[dict-item]  # the rest was never raw JSON
        if arguments.__class__ is dict:
            for value in arguments.values():
                # Without calling a function, because few calls have such a value.
                if value.__class__ is list or hasattr(value, "__fspath__"):
                    from .files import has_paths  # few programs send files

                    if has_paths(arguments):
                        raw = await self.call_with_files(name, arguments, on_progress=on_progress, timeout=timeout)
                        return _read("tools/call", CallToolResult, raw)
                    break
        params = {"name": name, "arguments": {} if arguments is None else arguments}
        seconds = self.timeout if timeout == "default" else timeout
        try:
            # Like `_ask`, without the cost of another coroutine for each call.
            if self._task_support is None:
                await self._learn_task_support()
            if self._task_support and self._needs_task(params):
                raw = await self._call_as_task(params, seconds, on_progress)
            else:
                raw = await self._send("tools/call", params, seconds, on_progress)
            era = self._era
            if era is not None and era.has_result_types and read_input_required(raw, "tools/call") is not None:
                raw = await self._ask_on("tools/call", params, raw, seconds, on_progress)
        except RemoteError as error:
            # The mirrored arguments may come from an outdated list.
            if error.code != HeaderMismatch.code or self._session.headings is None:
                raise
            # Spec: 2026-07-28 streamable-http, client behavior: list the tools again, then repeat the call.
            await self.list_tools(fresh=True)
            raw, _ = await self._ask("tools/call", params, on_progress, timeout)

        result = _read("tools/call", CallToolResult, raw)
        checks = self._checks
        if checks is not None and checks.listed and (problem := checks.problem(name, result)) is not None:
            # The tool may have changed since it was listed.
            await self.list_tools(fresh=True)
            if (problem := checks.problem(name, result)) is not None:
                raise ResultMismatch(name, problem, result)
        return result

    async def call_with_files(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> Raw:
        """Call a tool with the files at the paths in `arguments`, and return its raw result; see `call_tool`."""
        from .files import EXTENSION, FileArguments, declared, settings_in

        seconds = self.timeout if timeout == "default" else timeout
        tool = next((each for each in await self.list_tools() if each.name == name), None)
        era = await self._ensure_connected()
        connection, session = era.connection, self._session
        envelope = settings = None
        if session.envelope is not None:
            # Declared for this call only: to other calls the server offers what a model can fill in.
            envelope = Envelope(session.envelope.version, session.info, declared(session.capabilities))
            found = connection.begin("server/discover", {}, None, envelope)
            settings = settings_in(await connection.answer(found, seconds))
        send = getattr(connection.channel, "send_beside", None)
        is_local = connection.channel.origin().transport in ("stdio", "memory")
        files = FileArguments(tool, getattr(self._target, "url", ""), send, settings, is_local=is_local)
        params: dict[str, Any] = {"name": name, "arguments": await files.written(arguments)}
        if settings is None:
            return await self.request("tools/call", params, on_progress=on_progress, timeout=timeout)

        async def ask(params: Any) -> Raw:
            return await connection.answer(connection.begin("tools/call", params, on_progress, envelope), seconds)

        raw = await ask(params)
        if (state := await files.state_after(raw)) is not None:
            raw = await ask({**params, "requestState": state, "_meta": {f"{EXTENSION}/upload": {}}})
        raw = await complete_rounds("tools/call", ask, params, raw, self._callbacks, self.limits, session.faults)
        return await self.tasks.finish(raw, on_progress)

    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> TaskHandle:
        """Call a tool, and return the handle of its task as soon as the server has created it.

        If the server answers without a task, the handle has the result. Raises RemoteError if the call was refused.
        """
        if self._session.server_capabilities.tools is None:
            self._require("tools", "tools/call")
        params = {"name": name, "arguments": {} if arguments is None else arguments}
        seconds = self.timeout if timeout == "default" else timeout
        era = await self._ensure_connected()
        if self._task_support is None:
            await self._learn_task_support()
        support = (self._task_support or {}).get(name)
        if isinstance(era, LegacyEra) and support in ("optional", "required"):
            raw, on_progress = await era.start_task(params, seconds, on_progress)
        else:
            raw = await self._send("tools/call", params, seconds, on_progress)
            if era.has_result_types:
                raw = await self._complete("tools/call", params, raw, seconds, on_progress)
        return self.tasks.handle(raw, on_progress)

    def resume_task(self, task_id: str) -> TaskHandle:
        """Return the handle of a task that was started earlier, perhaps by another process."""
        return self.tasks.resume(task_id)

    @property
    def tasks(self) -> Tasks:
        """Lists, reads and cancels the tasks of this client."""
        if self._started_tasks is None:
            from .tasks import Tasks  # most servers have no tasks

            self._started_tasks = Tasks(self.request, self._current_era, self._callbacks, self.limits, self._faults)
        return self._started_tasks

    def _leave_task(self, result: Raw) -> None:
        if b'"taskId"' in bytes(result):
            self._start(self.tasks.leave(result))

    async def _learn_task_support(self) -> None:
        # List the tools before the first call, if the server is one of 2025-11-25 with tasks.
        self._task_support = {}
        if self._asks_for_tasks:
            await self.list_tools()

    @property
    def _asks_for_tasks(self) -> bool:
        # Spec: 2025-11-25 basic/utilities/tasks: only if the server declares `tasks.requests.tools.call`.
        offered: Any = self.server_capabilities.tasks
        for key in ("requests", "tools", "call"):
            offered = offered.get(key) if isinstance(offered, dict) else None
        return offered is not None and not self._current_era().has_result_types

    def _needs_task(self, params: Any) -> bool:
        # Spec: 2025-11-25 basic/utilities/tasks, tool-level negotiation: a tool that requires a task is called as one.
        if not self._task_support or not isinstance(params, dict) or "task" in params:
            return False
        return self._task_support.get(params.get("name", "")) == "required"

    async def _call_as_task(self, params: dict[str, Any], seconds: float | None, on_progress: OnProgress | None) -> Raw:
        era = await self._ensure_connected()
        if not isinstance(era, LegacyEra):
            return await self._send("tools/call", params, seconds, on_progress)
        return await self.tasks.finish(*await era.start_task(params, seconds, on_progress))

    # -------------------------------------------------------------------------------------- resources

    async def list_resources(self, *, fresh: bool = False) -> list[Resource]:
        """Return all resources, from all pages. `fresh` bypasses the cache."""
        if self.server_capabilities.resources is None:
            return []
        return await self._list("resources/list", "resources", Resource, fresh=fresh)

    async def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """Return all resource templates, from all pages. `fresh` bypasses the cache."""
        if self.server_capabilities.resources is None:
            return []
        return await self._list("resources/templates/list", "resourceTemplates", ResourceTemplate, fresh=fresh)

    async def read_resource(self, uri: str, *, fresh: bool = False) -> ReadResourceResult:
        """Return the contents of a resource. `fresh` bypasses the cache."""
        self._require("resources", "resources/read")
        raw = await self._cached("resources/read", uri, {"uri": uri}, fresh=fresh)
        result = _read("resources/read", _ReadResult, raw)
        return ReadResourceResult(**{**asdict(result), "contents": [_contents(entry) for entry in result.contents]})

    async def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource, which call `Callbacks.resource_updated`."""
        self._require("resources", "resources/subscribe", "subscribe")
        await (await self._ensure_connected()).subscribe(uri, self.timeout)
        # Only after the server has accepted it; each new connection requests it again.
        self._interests.uris.add(uri)

    async def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource."""
        # First, so that a connection which is opened meanwhile does not request it again.
        self._interests.uris.discard(uri)
        await (await self._ensure_connected()).unsubscribe(uri, self.timeout)

    # ----------------------------------------------------------------------------------------- events

    async def list_events(self) -> list[EventType]:
        """Return all types of events, from all pages; [] if the server has none."""
        from mcpd.protocol.types.events import EventType  # most servers have no events

        # Asked without a look at the capabilities, in which many servers announce events to some clients only.
        try:
            return await self._list("events/list", "events", EventType, fresh=True)
        except RemoteError as error:
            if error.code != MethodNotFound.code:
                raise
            return []

    def events(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        delivery: DeliveryMode = "auto",
        cursor: str | None = None,
        max_age: float | None = None,
        gaps: bool = False,
    ) -> EventSubscription:
        """Return a subscription to events: `async with client.events("incident.created") as events:`.

        `arguments` select events. `delivery` is "webhook", "push" or "poll"; by default, the first of these that client
        and server support. `cursor` continues after an event of an earlier subscription, but not further back than
        `max_age` seconds. With `gaps`, an `EventGap` marks the place where the server lost events.
        """
        from .events import EventSubscription, Source  # most servers have no events

        source = Source(
            request=self.request,
            list_events=self.list_events,
            connected=self._ensure_connected,
            era=self._current_era,
            limits=self.limits,
            faults=self.faults,
            webhook=self.webhook,
            is_closed=lambda: self._is_closed,
        )
        return EventSubscription(source, name, arguments, delivery=delivery, cursor=cursor, max_age=max_age, gaps=gaps)

    # ---------------------------------------------------------------------------- prompts, completion

    async def list_prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """Return all prompts, from all pages. `fresh` bypasses the cache."""
        if not self.server_capabilities.prompts:
            return []
        return await self._list("prompts/list", "prompts", Prompt, fresh=fresh)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Return the messages of a prompt."""
        self._require("prompts", "prompts/get")
        params = {"name": name, **({"arguments": dict(arguments)} if arguments else {})}
        return _read("prompts/get", GetPromptResult, await self.request("prompts/get", params))

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        known: Mapping[str, str] | None = None,
    ) -> CompleteResult:
        """Return values of an argument that begin with `value`. `known` are the values of other arguments."""
        self._require("completions", "completion/complete")
        params = CompleteParams(
            ref=ref,
            argument=CompletionArgument(name=argument, value=value),
            context=CompletionContext(arguments=dict(known)) if known else None,
        )
        return _read("completion/complete", CompleteResult, await self.request("completion/complete", params))

    # --------------------------------------------------------------------------------- other requests

    async def ping(self) -> None:
        """Check that the server responds: by `ping`, or by `server/discover` in modern versions, which have no ping."""
        await self.request(self._current_era().ping_method)

    async def set_log_level(self, level: LogLevel) -> None:
        """Request log messages of this level and above, which call `Callbacks.log`."""
        if method := self._current_era().log_method:
            self._require("logging", method)
        await (await self._ensure_connected()).set_log_level(level, self.timeout)
        self._interests.log_level = level

    def roots_changed(self) -> None:
        """Notify the server that `Callbacks.roots` returns other roots now. Modern servers ask when they need them."""
        self._current_era().roots_changed()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | Struct | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> Raw:
        """Send any request, and return the raw result. Input that the server asks for comes from the callbacks.

        The request is sent even if the server does not announce it. `timeout` is in seconds, None for no limit. Raises
        RemoteError for an error response, ProtocolError for an invalid response, RequestTimeout and ConnectionLost.
        """
        return (await self._ask(method, params, on_progress, timeout))[0]

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any] | Struct | Raw | None,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> tuple[Raw, bool]:
        # Return the result, and whether it took one round. Results that depend on the user's input are not cached.
        seconds = self.timeout if timeout == "default" else timeout
        if method == "tools/call" and self._needs_task(params):
            return await self._call_as_task(params, seconds, on_progress), False  # type: ignore[arg-type]
        first = await self._send(method, params, seconds, on_progress)
        if not self._current_era().has_result_types or read_input_required(first, method) is None:
            return first, True
        return await self._ask_on(method, params, first, seconds, on_progress), False

    async def _ask_on(
        self, method: str, params: Any, first: Raw, seconds: float | None, on_progress: OnProgress | None
    ) -> Raw:
        # Return the result after all rounds, and after the end of the task if the call has become one.
        raw = await self._complete(method, params, first, seconds, on_progress)
        return raw if method != "tools/call" else await self.tasks.finish(raw, on_progress)

    async def _complete(
        self, method: str, params: Any, first: Raw, seconds: float | None, on_progress: OnProgress | None
    ) -> Raw:
        def ask(params: Any) -> Coroutine[Any, Any, Raw]:
            return self._send(method, params, seconds, on_progress)

        faults = self._session.faults
        return await complete_rounds(method, ask, params, first, self._callbacks, self.limits, faults)

    async def _list(
        self, method: str, member: str, kind: type[T], *, fresh: bool, entries: list[Raw] | None = None
    ) -> list[T]:
        at = ""

        def ask(params: Any) -> Coroutine[Any, Any, Raw]:
            nonlocal at
            at = "" if params is None else f"cursor {params['cursor']}"
            return self._cached(method, at, params, fresh=fresh)

        read = partial(read_list, ask, method, member, kind, self.limits, self._session.faults, entries)
        try:
            return await read()
        except RemoteError:
            # The cursor has become invalid, so the earlier pages belong to an outdated list.
            if self._cache is not None:
                self._cache.forget(method)
            if not at:
                raise

        # Spec: 2026-07-28 server/utilities/caching: "discard all cached pages and re-fetch from the beginning".
        if entries is not None:
            entries.clear()
        return await read()

    async def _cached(self, method: str, parameter: str, params: Any, *, fresh: bool) -> Raw:
        if self._cache is None or not self._current_era().has_result_types:
            return await self.request(method, params)
        return await self._cache.get(method, parameter, lambda: self._ask(method, params), fresh=fresh)

    def _require(self, capability: str, method: str, feature: str = "") -> None:
        # Spec: 2025-11-25 basic/lifecycle, operation: "Only use capabilities that were successfully negotiated".
        announced = getattr(self.server_capabilities, capability)
        is_offered = announced is not None and (not feature or bool(getattr(announced, feature)))
        if is_offered or self._current_era().connection.is_lost or self._session.version is None:
            return

        # Versions before 2025-03-26 have no capability for completion.
        if getattr(self._session.version.shape(_EVERYTHING), capability) is not None:
            name = f"{capability}.{feature}" if feature else capability
            raise LocalProtocolError(
                f"the server does not offer {name}, so {method} was not sent (use Client.request to send it anyway)"
            )


def _is_repeatable(tool: Tool) -> bool:
    hints = tool.annotations
    return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


_EVERYTHING = ServerCapabilities(
    logging={}, completions={}, prompts=ListChanged(), resources=ResourcesCapability(), tools=ListChanged()
)


class _ReadResult(CacheableResult, kw_only=True):
    """A `resources/read` result. Text and blob contents have no tag, so they are distinguished later."""

    contents: list[Raw]


def _contents(entry: Raw) -> TextResourceContents | BlobResourceContents:
    if "blob" in _read("resources/read", dict[str, Raw], entry):
        return _read("resources/read", BlobResourceContents, entry)
    return _read("resources/read", TextResourceContents, entry)


_decoder: Callable[..., Decoder[Any]] = cache(Decoder)


def _read(method: str, kind: type[T], raw: Raw) -> T:
    try:
        found: T
        try:
            found = _decoder(kind).decode(raw)
        except ValidationError:
            found = _decoder(kind, strict=False).decode(raw)  # accepts "false" for false, like the official clients
        return found
    except MALFORMED as error:
        raise ProtocolError(f"The server's response to {method} is invalid: {explain(error)}") from None
