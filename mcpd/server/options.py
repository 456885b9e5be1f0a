"""The options of methods of `Server` such as `run`, `tool` and `event`, for type checkers; unused at run time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from os import PathLike
from socket import socket
from typing import Any, Literal, Protocol, TypedDict

from mcpd.protocol.channel import Listener, Overseer
from mcpd.protocol.principal import Principal
from mcpd.server.extensions.events.declare import EventContext, EventKind
from mcpd.server.extensions.options import BuiltInServeOptions, BuiltInToolOptions
from mcpd.server.registry.options import DescribedTool
from mcpd.transports.authentication import Protection
from mcpd.transports.websocket.server import WebSocketLimits
from .http import HttpSettings


class ToolOptions(DescribedTool, BuiltInToolOptions, total=False):
    """The options of a tool, including options of built-in extensions."""


class RunOptions(BuiltInServeOptions, total=False):
    """The options of `Server.run` besides the transports: the other members of `settings.Settings`, and options of
    built-in extensions.
    """

    listeners: Sequence[Listener]
    http_settings: HttpSettings | None
    ws_limits: WebSocketLimits | None
    sockets: Mapping[str, Sequence[socket]]
    descriptors: tuple[int, int] | None
    token: str | None
    auth: Protection | None
    insecure: bool
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    socket_mode: str
    grace: float
    heartbeat: float
    max_frame_bytes: int | None
    max_memory: int | None
    max_threads: int
    thread_timeout: float
    metrics: str | None
    control: str
    wire_log: str | None
    tool_search: str
    resources_as_tools: bool
    on_state: Callable[[Literal["ready", "stopping"]], None] | None
    overseer: Overseer | None
    announce: Callable[[str], None] | None
    after_start: Callable[[], None] | None
    extensions: Mapping[str, Mapping[str, Any]]


class MountOptions(TypedDict, total=False):
    """The settings of a mount; `[mounts.NAME]` in mcpd.toml has the same."""

    enabled: bool
    prefix: str
    allow: Sequence[str]
    deny: Sequence[str]
    rename: Mapping[str, str]
    describe: Mapping[str, str]
    arguments: Mapping[str, Mapping[str, Any]]
    instances: Literal["client", "principal", "shared", "call"]
    instance_idle: float
    eager: bool
    protocol: Literal["auto", "modern", "legacy"]
    start_timeout: float
    timeout: float
    questions: Literal["ask", "refuse"]
    roots: Sequence[str]
    identity: Literal["proxy", "upstream"]
    token_file: str
    forward_headers: Sequence[str]
    inherit_env: bool
    csp: Literal["deny"] | Sequence[str]
    pin: bool
    task: bool


class OpenApiOptions(TypedDict, total=False):
    """The options of `Server.add_openapi`, which `sources.tables.OpenApiTable` describes."""

    base: str | None
    prefix: str
    allow: Sequence[str]
    deny: Sequence[str]
    rename: Mapping[str, str]
    always_load: Sequence[str]
    headers: Mapping[str, str]
    query: Mapping[str, str]
    security: Mapping[str, str]
    token_file: str | PathLike[str] | None
    forward_headers: Sequence[str]
    forward_authorization: bool
    timeout: float
    max_bytes: int
    output_schemas: bool


class EventOptions(TypedDict, total=False):
    """The options of `Server.event` and `Server.event_source`."""

    delivery: Collection[str]
    on: str | Collection[str]
    visible: Callable[[EventContext], Any]
    description: str
    replay: bool
    channel: bool | Callable[[Any], str]
    private: bool
    meta: dict[str, Any]


class EmitOptions(TypedDict, total=False):
    """The options of `Server.emit`."""

    id: str
    timestamp: str | float | datetime
    to: Principal | str
    subscription: str


class EventDecorator(Protocol):
    """What `@server.event(…)` does to a function."""

    def __call__(self, function: Callable[..., Any], /) -> EventKind:
        """Register the function, and return the type of event."""
