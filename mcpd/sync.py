"""`mcpd.sync.Client`: a client for scripts and programs without an event loop.

    from mcpd.sync import Client

    with Client(["npx", "-y", "some-server"]) as client:
        print(client.call("echo", text="hi"))

`Client` and `ClientGroup` have the methods of `mcpd.Client` and `mcpd.ClientGroup`, with the same results and errors.
The only difference is that nothing is awaited.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any

from msgspec.structs import replace

from mcpd.client import Callbacks, client as awaited, group as awaited_group
from mcpd.client.blocking import BlockingCalls, BlockingClient, blocking, parameters_of
from mcpd.client.callbacks import run_in_thread, settled
from mcpd.client.group import Collision
from mcpd.client.target import Target
from mcpd.errors import McpdError

__all__ = ["Client", "ClientGroup"]

_NO_CALLBACKS = Callbacks()


class Client(BlockingClient[awaited.Client]):
    """A connection to one server: `with Client(target) as client:`. It has the parameters of `mcpd.Client`.

    Any thread may call it, several at a time. Plain callbacks run on threads of their own, so they may block and call
    the client; `async` callbacks run on the client's thread. A client that is left open is closed when the program
    ends.
    """

    @parameters_of(awaited.Client)
    def __init__(self, target: Target, callbacks: Callbacks = _NO_CALLBACKS, **options: Any) -> None:
        super().__init__(awaited.Client(target, _in_threads(callbacks), **options))


class ClientGroup(BlockingCalls[awaited_group.ClientGroup]):
    """Several servers: `with ClientGroup({"git": […], "web": "https://…"}) as group:`. Like `mcpd.ClientGroup`.

    Callbacks run as they do for `Client`. `on_server` is called on the group's thread, so it must not call the group.
    """

    _thread_name = "mcpd-client-group"

    @parameters_of(awaited_group.ClientGroup)
    def __init__(
        self,
        servers: Mapping[str, Target] | str | os.PathLike[str],
        callbacks: Callbacks | Callable[[str], Callbacks] = _NO_CALLBACKS,
        **options: Any,
    ) -> None:
        of = (lambda name: callbacks) if isinstance(callbacks, Callbacks) else callbacks
        super().__init__(awaited_group.ClientGroup(servers, lambda name: _in_threads(of(name)), **options))

    list_tasks = blocking(awaited_group.ClientGroup.list_tasks)

    @property
    def errors(self) -> dict[str, McpdError]:
        """Why servers are unavailable, by name. Servers that have not been tried yet are left out."""
        return self._client.errors

    @property
    def collisions(self) -> list[Collision]:
        """Entries of the last lists that are hidden because another server has an entry of the same name."""
        return self._client.collisions


def _in_threads(callbacks: Callbacks) -> Callbacks:
    """The same callbacks; plain functions run on threads of their own."""
    given = {name: getattr(callbacks, name) for name in callbacks.__struct_fields__}
    plain = {name: value for name, value in given.items() if callable(value) and not iscoroutinefunction(value)}
    return replace(callbacks, **{name: _in_thread(function) for name, function in plain.items()})


def _in_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    async def run(*arguments: Any) -> Any:
        return await settled(await run_in_thread(function, *arguments))

    return run
