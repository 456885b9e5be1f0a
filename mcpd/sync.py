"""`mcpd.sync.Client`: a client for scripts and programs without an event loop.

    from mcpd.sync import Client

    with Client(["npx", "-y", "some-server"]) as client:
        print(client.call("echo", text="hi"))

What is asked is the same as with `mcpd.Client`, and so are the results and errors: only nothing is awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from msgspec.structs import replace

from .client import Callbacks, ClientLimits
from .client import client as awaited
from .client.blocking import BlockingClient
from .client.loop_thread import in_thread
from .client.target import Target
from .transports.http_client.options import Headers, HttpOptions
from .types.lifecycle import Implementation

__all__ = ["Client"]

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
        headers: Headers | None = None,
        http: HttpOptions | None = None,
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
                headers=headers,
                http=http,
            )
        )


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
