"""The options of `Server(…)`, `Server.run` and the decorators, for type checkers (`Unpack`) and error messages.

A missing option is None or empty. The names of the decorators' options are in `metadata.py` too; a test compares them.
At run time the constructors and `tool_options` of extensions define their options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from socket import socket
from typing import Any, Literal, TypeAlias, TypedDict

from mcpd.protocol.channel import Listener, Overseer
from mcpd.protocol.types.base import Icon
from mcpd.protocol.types.features import Annotations, ToolAnnotations
from mcpd.server.extensions.serving import AppsServerOptions
from mcpd.server.extensions.ui.apps import Visibility
from mcpd.server.extensions.ui.meta import Csp, Permissions
from mcpd.server.extensions.ui.view import View, ViewKind
from mcpd.server.http import HttpSettings
from mcpd.server.registry.caching import CacheHint
from mcpd.server.registry.rules import EntryRule, ScopesOf
from mcpd.transports.authentication import Protection
from mcpd.transports.websocket.server import WebSocketLimits

Icons: TypeAlias = Iterable[Icon | Mapping[str, Any]]


class Described(TypedDict, total=False):
    """Options of everything that is listed."""

    name: str | None
    """By default the function's name."""
    title: str | None
    description: str | None
    """By default from the function's docstring."""
    icons: Icons
    meta: Mapping[str, Any] | None
    """Its `_meta`."""


class DescribedPrompt(Described, total=False):
    """Options of prompts, tools and resources."""

    tags: Iterable[str]
    """Groups entries, for `Server.enable` and `disable`, visibility rules, and clients (`_meta.fastmcp.tags`)."""
    enabled: bool
    """False hides the entry until `Server.enable`."""
    visible: EntryRule | None
    """A function of the Context that returns whether the caller sees the entry; None shows it to everybody."""
    scopes: Collection[str] | ScopesOf | None
    """The scopes that a caller's token needs, or a function that returns them for the arguments as received."""
    hide: bool
    """True hides the entry from callers without its `scopes`."""
    anonymous: bool
    """True admits callers without a token."""


class DescribedTool(DescribedPrompt, total=False):
    """Options of tools."""

    annotations: ToolAnnotations | Mapping[str, Any] | None
    """Hints for clients, such as {"readOnlyHint": True}."""
    input_schema: Mapping[str, Any] | None
    """A JSON Schema; the function then takes one dict that fits it."""
    output_schema: Mapping[str, Any] | None
    """A JSON Schema for the function's result."""
    structured_output: bool
    """False sends the result as text only, without an output schema, whatever the annotation."""
    timeout: float | None
    """The time limit of a call in seconds, not counting questions to the client. The default is the server's
    `tool_timeout`; math.inf means no limit.
    """
    extensions: Mapping[str, Mapping[str, Any]]
    """The options of extensions, by the extension's id."""


class DescribedResource(DescribedPrompt, total=False):
    """Options of resources."""

    mime_type: str | None
    size: int | None
    """In bytes; for a resource with a fixed URI."""
    annotations: Annotations | Mapping[str, Any] | None
    cache: CacheHint | None
    """How long clients may keep the content, and who; by default not at all."""
    unsafe_paths: bool | Collection[str]
    """The variables of a template that may hold any text: True for all, or their names. Values of other variables
    cannot be absolute paths or contain `..`, a backslash, a drive letter or NUL, in any encoding.
    """


class AppToolOptions(TypedDict, total=False):
    """The options of a tool for MCP Apps."""

    ui: str | None
    """The View that shows the result: its `ui://` URI, or its name in `Server.app`."""
    view: ViewKind | View | None
    """The bundled page that shows the result, instead of `ui`."""
    ui_when: Callable[..., Any] | None
    """A function, with or without a Context, that returns whether the tool has its View for a request."""
    visibility: Visibility | None
    """["app"] keeps the tool from the model."""


class AppOptions(Described, total=False):
    """The options of a View besides its HTML."""

    csp: Csp | None
    permissions: Permissions | None
    domain: str | None
    prefers_border: bool | None
    replace: bool


class BuiltInServeOptions(AppsServerOptions, total=False):
    """Options of `Server.run(…)`."""


class BuiltInOptions(BuiltInServeOptions, total=False):
    """Options of `Server(…)`."""


class BuiltInToolOptions(AppToolOptions, total=False):
    """Options of `@server.tool(…)`."""


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
    max_frame_bytes: int | None
    max_memory: int | None
    max_threads: int
    thread_timeout: float
    metrics: str | None
    control: str
    wire_log: str | None
    on_state: Callable[[Literal["ready", "stopping"]], None] | None
    overseer: Overseer | None
    announce: Callable[[str], None] | None
    look_over: Callable[[], None] | None
    extensions: Mapping[str, Mapping[str, Any]]
