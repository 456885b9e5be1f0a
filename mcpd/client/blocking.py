"""`BlockingClient`: the methods of a `Client` as plain methods. Its event loop runs on a thread of its own.

It is the base of `mcpd.sync.Client` and `mcpd.testing.SyncTestClient`. `BlockingCalls`, the part that also fits a group
of clients, is the base of `mcpd.sync.ClientGroup`. `blocking` derives each method from the awaited one, with its
signature and docstring, so that neither is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, cast

from mcpd.client.client import Client, ServerDetails
from mcpd.client.loop_thread import LoopThread
from mcpd.client.session import ClientSession
from mcpd.client.tool_function import ToolFunction
from mcpd.errors import ConfigurationError
from mcpd.protocol.types.tools import CallToolResult

if TYPE_CHECKING:
    from mcpd.client.group import ClientGroup

__all__ = ["BlockingCalls", "BlockingClient", "blocking", "parameters_of"]

AnyClient = TypeVar("AnyClient", bound="Client | ClientGroup")
OneClient = TypeVar("OneClient", bound=Client)
P = ParamSpec("P")
T = TypeVar("T")


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a plain method that runs `method` of the wrapped client on its loop, and waits for the result.

    An `on_progress` callback is called on the caller's thread, where it may block. If it raises, the call is cancelled
    and the exception is raised.
    """
    name = method.__name__

    @wraps(method)
    def call(self: BlockingCalls[Any], *args: Any, **options: Any) -> Any:
        thread, awaited = self._thread, getattr(self._client, name)
        on_progress = options.pop("on_progress", None)
        if on_progress is None:
            return thread.run(lambda: awaited(*args, **options))
        if iscoroutinefunction(on_progress):
            raise ConfigurationError("on_progress must be a plain function, not a coroutine function")
        return thread.run_with_progress(lambda report: awaited(*args, on_progress=report, **options), on_progress)

    return cast("Callable[Concatenate[Any, P], T]", call)


def parameters_of(kind: Callable[P, object]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor the signature of another class, for people and for type checkers."""

    def decorate(function: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        function.__wrapped__ = kind.__init__  # type: ignore[attr-defined]
        return function

    return decorate


class BlockingCalls(AbstractContextManager["BlockingCalls[AnyClient]"], Generic[AnyClient]):
    """Drives an unopened client or group by plain methods. Any thread may call them, several at a time.

    Methods return the result of the awaited method and raise the same errors.
    """

    _thread_name = "mcpd-client"

    def __init__(self, client: AnyClient) -> None:
        self._client = client
        self._thread = LoopThread(self._thread_name, client.aclose)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect and negotiate a protocol version. Raises the errors of `Client.open`."""
        self._thread.start()
        try:
            self._thread.run(self._client.open)
        except BaseException:
            self._thread.stop()
            raise

    def close(self) -> None:
        """Close the connection. Calls that wait on other threads raise ConnectionLost. Safe to call twice."""
        if not self._thread.is_running:
            return
        try:
            self._thread.run(self._client.aclose)
        finally:
            self._thread.stop()

    list_tools = blocking(Client.list_tools)
    call_tool = blocking(Client.call_tool)
    call = blocking(Client.call)
    list_resources = blocking(Client.list_resources)
    list_resource_templates = blocking(Client.list_resource_templates)
    read_resource = blocking(Client.read_resource)
    subscribe = blocking(Client.subscribe)
    unsubscribe = blocking(Client.unsubscribe)
    list_prompts = blocking(Client.list_prompts)
    get_prompt = blocking(Client.get_prompt)
    complete = blocking(Client.complete)
    set_log_level = blocking(Client.set_log_level)

    def tool_functions(
        self, *names: str, timeout: float | None | Literal["default"] = "default"
    ) -> list[ToolFunction[Any]]:
        """Return the tools as plain functions with types and docstrings, for agent libraries: see `ToolFunction`.

        `names` selects tools, in that order; by default all tools that a model may call are returned. `timeout` is the
        `timeout` of each call. Raises ConfigurationError for a name that no tool has.
        """
        from mcpd.client.tool_function import plain_functions

        def call(name: str, arguments: dict[str, Any]) -> CallToolResult:
            return self.call_tool(name, arguments, timeout=timeout)

        return plain_functions(self.list_tools(), names, call)


class BlockingClient(BlockingCalls[OneClient], ServerDetails):
    """Drives the client of one server by plain methods."""

    ping = blocking(Client.ping)
    request = blocking(Client.request)
    list_tools_as_sent = blocking(Client.list_tools_as_sent)

    def roots_changed(self) -> None:
        """Notify the server that `Callbacks.roots` returns other roots now. Modern servers ask when they need them."""

        async def notify() -> None:
            self._client.roots_changed()

        self._thread.run(notify)

    def _negotiated(self) -> ClientSession:
        return self._client._negotiated()
