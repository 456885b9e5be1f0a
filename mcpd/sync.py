"""`mcpd.sync.Client`: a client for scripts and programs without an event loop.

    from mcpd.sync import Client

    with Client(["npx", "-y", "some-server"]) as client:
        print(client.call("echo", text="hi"))

What is asked is the same as with `mcpd.Client`, and with `mcpd.ClientGroup` for several servers, and so are the results
and errors: only nothing is awaited.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from msgspec.structs import replace

from mcpd.client import Callbacks, ClientLimits, client as awaited, group as awaited_group
from mcpd.client.auth_settings import Auth
from mcpd.client.blocking import BlockingCalls, BlockingClient
from mcpd.client.group_lists import Collision
from mcpd.client.loop_thread import in_thread
from mcpd.client.target import Target
from mcpd.client.watched import ChannelWatcher
from mcpd.errors import McpdError
from mcpd.transports.http_client.options import Headers, HttpOptions
from mcpd.types.lifecycle import Implementation

__all__ = ["Client", "ClientGroup"]

_NO_CALLBACKS = Callbacks()
_DEFAULT_LIMITS = ClientLimits()


class Client(BlockingClient[awaited.Client]):
    """A connection to one server: `with Client(target) as client:`. Takes what `mcpd.Client` takes.

    Any thread may call it, several at a time. Plain callbacks are run on threads of their own, so that they may block
    and ask the client; `async` ones on the client's thread. One that is not closed is closed as the program ends.
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
        super().__init__(
            awaited.Client(
                target,
                _all_apart(callbacks),
                info=info,
                extensions=extensions,
                version=version,
                timeout=timeout,
                limits=limits,
                cache=cache,
                reconnect=reconnect,
                check_results=check_results,
                headers=headers,
                http=http,
                watcher=watcher,
                auth=auth,
            )
        )


class ClientGroup(BlockingCalls[awaited_group.ClientGroup]):
    """Several servers: `with ClientGroup({"git": […], "web": "https://…"}) as group:`. As `mcpd.ClientGroup`.

    Callbacks are run as those of `Client`. `on_server` is called on the group's thread, which must not wait for it.
    """

    _thread_name = "mcpd-client-group"

    def __init__(
        self,
        servers: Mapping[str, Target] | str | os.PathLike[str],
        callbacks: Callbacks | Callable[[str], Callbacks] = _NO_CALLBACKS,
        *,
        prefixes: bool = True,
        on_server: Callable[[str, McpdError | None], object] | None = None,
        opening_seconds: float = 30.0,
        info: Implementation | None = None,
        extensions: Mapping[str, Any] | None = None,
        version: str | None = None,
        timeout: float | None = 60.0,
        limits: ClientLimits = _DEFAULT_LIMITS,
        cache: bool = True,
        check_results: bool = True,
        http: HttpOptions | None = None,
    ) -> None:
        given = callbacks
        super().__init__(
            awaited_group.ClientGroup(
                servers,
                _all_apart(given) if isinstance(given, Callbacks) else lambda name: _all_apart(given(name)),
                prefixes=prefixes,
                on_server=on_server,
                opening_seconds=opening_seconds,
                info=info,
                extensions=extensions,
                version=version,
                timeout=timeout,
                limits=limits,
                cache=cache,
                check_results=check_results,
                http=http,
            )
        )

    @property
    def errors(self) -> dict[str, McpdError]:
        """Why each of the servers that are not there is not, by name; those that were not yet tried are left out."""
        return self._client.errors

    @property
    def collisions(self) -> list[Collision]:
        """What has the name of another, and therefore cannot be reached: of the lists that were asked for last."""
        return self._client.collisions


def _all_apart(callbacks: Callbacks) -> Callbacks:
    """The same callbacks; plain ones are run on threads of their own."""
    given = {name: getattr(callbacks, name) for name in callbacks.__struct_fields__}
    plain = {name: one for name, one in given.items() if callable(one) and not iscoroutinefunction(one)}
    return replace(callbacks, **{name: _apart(one) for name, one in plain.items()})


def _apart(function: Callable[..., Any]) -> Callable[..., Any]:
    async def run(*arguments: Any) -> Any:
        value = await in_thread(function, *arguments)
        return await value if isawaitable(value) else value

    return run
