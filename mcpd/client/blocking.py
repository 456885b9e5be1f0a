"""`BlockingClient`: the methods of a `Client` as plain ones. It lives in an event loop on a thread of its own.

The base of `mcpd.sync.Client` and of `mcpd.testing.SyncTestClient`; `BlockingCalls`, what it has in common with a group
of clients, is that of `mcpd.sync.ClientGroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from inspect import iscoroutinefunction
from types import TracebackType, UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from msgspec import Raw, Struct

from mcpd.client.client import Client
from mcpd.client.events import OnProgress
from mcpd.client.faults import Faults
from mcpd.client.loop_thread import LoopThread
from mcpd.client.tool_function import ToolFunction
from mcpd.errors import ConfigurationError
from mcpd.types.completion import CompleteResult, PromptReference, ResourceTemplateReference
from mcpd.types.lifecycle import Implementation, ServerCapabilities
from mcpd.types.notifications import LogLevel
from mcpd.types.prompts import GetPromptResult, Prompt
from mcpd.types.resources import ReadResourceResult, Resource, ResourceTemplate
from mcpd.types.tools import CallToolResult, Tool

if TYPE_CHECKING:
    from mcpd.client.group import ClientGroup

__all__ = ["BlockingCalls", "BlockingClient"]

C = TypeVar("C", bound="Client | ClientGroup")
One = TypeVar("One", bound=Client)
T = TypeVar("T")


class BlockingCalls(AbstractContextManager["BlockingCalls[C]"], Generic[C]):
    """A client or group that was made and not opened, driven by plain methods; any thread may call them.

    Methods return what is awaited at the `Client`'s, and raise the same. `on_progress` is called on the thread of the
    caller, and may block; what it raises gives the call up, and is raised.
    """

    _thread_name = "mcpd-client"

    def __init__(self, client: C) -> None:
        self._client = client
        self._thread = LoopThread(self._thread_name, client.aclose)

    # ------------------------------------------------------------------------------------- opening

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect and agree on a version. Raises as `Client.open`."""
        self._thread.start()
        try:
            self._thread.wait(self._client.open)
        except BaseException:
            self._thread.end()
            raise

    def close(self) -> None:
        """Close the connection; what still waits on other threads ends with ConnectionLost. Safe to call twice."""
        if not self._thread.is_running:
            return
        try:
            self._thread.wait(self._client.aclose)
        finally:
            self._thread.end()

    def _wait(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any) -> T:
        return self._thread.wait(lambda: function(*arguments, **options))

    def _wait_telling(
        self,
        on_progress: OnProgress | None,
        function: Callable[..., Coroutine[Any, Any, T]],
        *given: Any,
        **options: Any,
    ) -> T:
        if on_progress is None:
            return self._thread.wait(lambda: function(*given, **options))
        if iscoroutinefunction(on_progress):
            raise ConfigurationError("on_progress is a coroutine function: give a plain one")
        return self._thread.wait_telling(lambda tell: function(*given, on_progress=tell, **options), on_progress)

    # ------------------------------------------------------------------------------------------ tools

    def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """All tools, from all pages; none if the server has none to offer."""
        return self._wait(self._client.list_tools, fresh=fresh)

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> CallToolResult:
        """Call a tool. A tool that failed gives a result with `is_error`; RemoteError is for calls that were none."""
        return self._wait_telling(on_progress, self._client.call_tool, name, arguments, timeout=timeout)

    @overload
    def call(
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
    def call(
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

    def call(
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
        """What a tool returned, as `returns` if that is given. Takes and raises the same as `Client.call`."""
        every = {**(arguments or {}), **named}
        return self._wait_telling(on_progress, self._client.call, tool, every, returns=returns, timeout=timeout)

    def tool_functions(
        self, *names: str, timeout: float | None | Literal["default"] = "default"
    ) -> list[ToolFunction[Any]]:
        """The tools as plain functions with types and docstrings, for agent libraries: see `ToolFunction`.

        All that models may call, or those of these `names`, in their order; `timeout` holds for each call. Raises
        ConfigurationError for a name that no tool has.
        """
        from mcpd.client.functions import plain_functions

        def call(name: str, arguments: dict[str, Any]) -> CallToolResult:
            return self.call_tool(name, arguments, timeout=timeout)

        return plain_functions(self.list_tools(), names, call)

    # -------------------------------------------------------------------------------------- resources

    def list_resources(self, *, fresh: bool = False) -> list[Resource]:
        """All resources, from all pages."""
        return self._wait(self._client.list_resources, fresh=fresh)

    def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """All resource templates, from all pages."""
        return self._wait(self._client.list_resource_templates, fresh=fresh)

    def read_resource(self, uri: str, *, fresh: bool = False) -> ReadResourceResult:
        """What a resource holds."""
        return self._wait(self._client.read_resource, uri, fresh=fresh)

    def subscribe(self, uri: str) -> None:
        """Hear of changes of a resource, through `Callbacks.resource_updated`."""
        self._wait(self._client.subscribe, uri)

    def unsubscribe(self, uri: str) -> None:
        """Hear of them no longer."""
        self._wait(self._client.unsubscribe, uri)

    # ---------------------------------------------------------------------------- prompts, completion

    def list_prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """All prompts, from all pages."""
        return self._wait(self._client.list_prompts, fresh=fresh)

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """A prompt, filled in."""
        return self._wait(self._client.get_prompt, name, arguments)

    def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        known: Mapping[str, str] | None = None,
    ) -> CompleteResult:
        """Suggestions for an argument of which `value` is typed so far; `known` are the others."""
        return self._wait(self._client.complete, ref, argument, value, known)

    def set_log_level(self, level: LogLevel) -> None:
        """Hear of log messages of this level and above, through `Callbacks.log`."""
        self._wait(self._client.set_log_level, level)


class BlockingClient(BlockingCalls[One]):
    """The same with what there is of one server only."""

    # ----------------------------------------------------------------------------- what is known of it

    @property
    def version(self) -> str:
        """The protocol version in force."""
        return self._client.version

    @property
    def is_modern(self) -> bool:
        """Whether the version in force is one without a handshake."""
        return self._client.is_modern

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is, if it does."""
        return self._client.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server offers."""
        return self._client.server_capabilities

    @property
    def faults(self) -> Faults:
        """For what the server does wrong: writes it to the log, or counts it."""
        return self._client.faults

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used: a text for the model."""
        return self._client.instructions

    # ------------------------------------------------------------------------------------------- rest

    def ping(self) -> None:
        """Ask whether the server is there; modern versions have no ping, so that it is asked what it is."""
        self._wait(self._client.ping)

    def roots_changed(self) -> None:
        """Tell the server that `Callbacks.roots` gives others now; modern servers ask when they need them."""

        async def tell() -> None:
            self._client.roots_changed()

        self._thread.wait(tell)

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | Struct | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> Raw:
        """Any request; the raw result. Raises as `Client.request`."""
        return self._wait_telling(on_progress, self._client.request, method, params, timeout=timeout)

    def list_tools_as_sent(self, *, fresh: bool = False) -> tuple[list[Tool], list[Raw]]:
        """All tools, and beside them the entries as the server wrote them, those too that cannot be read."""
        return self._wait(self._client.list_tools_as_sent, fresh=fresh)
