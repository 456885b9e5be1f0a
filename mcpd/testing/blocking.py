"""`SyncTestClient`: a client for tests that are plain functions. It lives in an event loop on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType, UnionType
from typing import Any, Literal, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import Raw, Struct

from ..client.events import OnProgress
from ..errors import LocalProtocolError
from ..types.completion import CompleteResult, PromptReference, ResourceTemplateReference
from ..types.prompts import GetPromptResult, Prompt
from ..types.resources import ReadResourceResult, Resource, ResourceTemplate
from ..types.tools import CallToolResult, Tool
from .client import TestClient
from .recording import WireMessage

__all__ = ["SyncTestClient"]

T = TypeVar("T")


class SyncTestClient(AbstractContextManager["SyncTestClient"]):
    """`with SyncTestClient(lambda: TestClient(server)) as client:`, or by the fixture `mcpd_client`.

    Its methods are those of `TestClient`, and return what is awaited there. The server's `async` functions and the
    callbacks run on the other thread. `client` is the `TestClient` itself, for what is not asked of a server.
    """

    __test__ = False

    def __init__(self, make: Callable[[], TestClient]) -> None:
        self.client = make()
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal("asyncio", name="mcpd-test-client"))
            self._wait(self.client.open)
            stack.callback(self._wait, self.client.aclose)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        self._portal = None

    def _wait(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        if self._portal is None:
            raise LocalProtocolError("the client is not open: use it inside `with`")
        answer: T = self._portal.call(function, *arguments)
        return answer

    # -- what is known ------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """The protocol version in force."""
        return self.client.version

    @property
    def messages(self) -> list[WireMessage]:
        """All that passed, in order."""
        return self.client.messages

    def sent(self, method: str | None = None) -> list[Any]:
        """The messages that this client sent, as JSON; those of one method only, if it is named."""
        return self.client.sent(method)

    def received(self, method: str | None = None) -> list[Any]:
        """The messages that the server sent, as JSON; those of one method only, if it is named."""
        return self.client.received(method)

    # -- what is asked ------------------------------------------------------------------------

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
        """What a tool returned, as `returns` if that is given. Raises as `Client.call`."""

        every = {**(arguments or {}), **named}

        async def ask() -> Any:
            return await self.client.call(tool, every, returns=returns, on_progress=on_progress, timeout=timeout)

        return self._wait(ask)

    def value(self, tool: str, /, **arguments: Any) -> Any:
        """`call` without options, for tools whose arguments are called like them."""
        return self.call(tool, arguments)

    def call_tool(self, name: str, arguments: Mapping[str, Any] | Raw | None = None) -> CallToolResult:
        """The whole result of a tool. A tool that failed gives one with `is_error`."""
        return self._wait(self.client.call_tool, name, arguments)

    def list_tools(self) -> list[Tool]:
        """All tools, from all pages."""
        return self._wait(self.client.list_tools)

    def list_resources(self) -> list[Resource]:
        """All resources, from all pages."""
        return self._wait(self.client.list_resources)

    def list_resource_templates(self) -> list[ResourceTemplate]:
        """All resource templates, from all pages."""
        return self._wait(self.client.list_resource_templates)

    def read_resource(self, uri: str) -> ReadResourceResult:
        """What a resource holds."""
        return self._wait(self.client.read_resource, uri)

    def list_prompts(self) -> list[Prompt]:
        """All prompts, from all pages."""
        return self._wait(self.client.list_prompts)

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """A prompt, filled in."""
        return self._wait(self.client.get_prompt, name, arguments)

    def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        known: Mapping[str, str] | None = None,
    ) -> CompleteResult:
        """Suggestions for an argument of which `value` is typed so far; `known` are the others."""
        return self._wait(self.client.complete, ref, argument, value, known)

    def request(self, method: str, params: Mapping[str, Any] | Struct | Raw | None = None) -> Raw:
        """Any request; the raw result."""
        return self._wait(self.client.request, method, params)
