"""Connects to a target: a server in this process, an open channel, or a command or URL, which may be given as text.

The meaning of texts is defined in `targets`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from mcpd.client.http.options import HttpOptions
from mcpd.client.targets.named import CommandTarget, FileTarget, NamedTarget, UrlTarget, command_of
from mcpd.errors import ConfigurationError, missing_extra
from mcpd.transports.challenge import Authorization
from mcpd.transports.process import open_process
from .channels import StartableChannel
from .limits import ClientLimits

_DEFAULT_LIMITS = ClientLimits()


@runtime_checkable
class InProcess(Protocol):
    """A server in this process, such as `mcpd.Server`."""

    def connect_memory(self) -> Any:
        """Serve an in-memory channel, and return the client's end of it."""


Target: TypeAlias = InProcess | StartableChannel | NamedTarget | Sequence[str] | str | os.PathLike[str]


async def connect(
    target: Target,
    limits: ClientLimits = _DEFAULT_LIMITS,
    http: HttpOptions | None = None,
    authorization: Authorization | None = None,
) -> StartableChannel:
    """Open a channel to a target. Raises ConfigurationError, with advice, for an unusable target.

    `http` configures URLs; a WebSocket uses only its headers. `authorization` authorizes requests to URLs.
    """
    found = resolve(target)
    if isinstance(found, InProcess):
        channel: StartableChannel = found.connect_memory()
        return channel

    if isinstance(found, CommandTarget):
        return await open_process(
            found.command,
            env=found.env if found.env is None or found.is_clean else {**os.environ, **found.env},
            cwd=found.cwd,
            name=str(found),
            max_frame_bytes=limits.message_bytes,
            stderr_bytes_per_second=limits.stderr_bytes_per_second,
        )
    if isinstance(found, UrlTarget):
        return await _connect_url(found, limits, http, authorization)
    return found


def resolve(target: Target) -> InProcess | StartableChannel | CommandTarget | UrlTarget:
    """Return the target of a text, with a file as the command that serves it. Raises ConfigurationError."""
    if isinstance(target, InProcess):
        return target
    if isinstance(target, (str, os.PathLike)):
        from mcpd.client.targets.grammar import parse  # not needed for servers and commands

        target = parse(target) if isinstance(target, str) else parse(os.path.join(".", os.fspath(target)))
    if isinstance(target, FileTarget):
        return command_of(target)
    if isinstance(target, (CommandTarget, UrlTarget)):
        return target
    if isinstance(target, (list, tuple)):
        return CommandTarget(tuple(target))
    if hasattr(target, "start") and hasattr(target, "send"):
        return target  # type: ignore[return-value]
    raise ConfigurationError(
        f"{target!r} is not a target: use a Server, a string such as a URL or a file, a command as a list of strings, "
        "or an open channel"
    )


async def _connect_url(
    target: UrlTarget, limits: ClientLimits, http: HttpOptions | None, authorization: Authorization | None
) -> StartableChannel:
    if target.url.startswith("ws"):
        return await _connect_websocket(target, limits, http, authorization)
    try:
        from mcpd.client.http.channel import open_http
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"{target}: reaching servers by URL", "client") from None
    return await open_http(
        target.url,
        http,
        headers=target.headers,
        socket=target.socket,
        ca_file=target.ca_file,
        name=target.name,
        max_frame_bytes=limits.message_bytes,
        authorization=authorization,
    )


async def _connect_websocket(
    target: UrlTarget, limits: ClientLimits, http: HttpOptions | None, authorization: Authorization | None
) -> StartableChannel:
    # Open a WebSocket. After a refusal, the handshake is repeated with the authorization that the server requires.
    from mcpd.transports.websocket.client import RefusedHandshake, open_websocket  # imports a library

    headers = {**target.headers, **(await http.fields() if http is not None else {})}
    request = None if authorization is None else authorization.begin("GET", f"http{target.url[2:]}", "")

    while True:
        try:
            return await open_websocket(
                target.url,
                headers=headers if request is None else {**headers, **await request.fields()},
                socket=target.socket,
                ca_file=target.ca_file,
                name=str(target),
                max_frame_bytes=limits.message_bytes,
            )
        except RefusedHandshake as error:
            if request is None:
                raise
            # A refusal may bring a nonce, which the next handshake needs.
            request.on_response(error.headers)
            if error.status not in (401, 403) or not await request.refused(error.status, error.challenges):
                raise
