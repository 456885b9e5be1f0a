"""What `Server.run` and the decorators of `Server` take, for type checkers; nothing here is used at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from ..extensions.ui.options import AppToolOptions
from ..http import HttpSettings
from ..registry.options import Described
from ..transports.websocket_server import Limits
from ..types.content import Annotations
from ..types.tools import ToolAnnotations

__all__ = ["ResourceOptions", "RunOptions", "ToolOptions"]


class ToolOptions(Described, AppToolOptions, total=False):
    """What a tool may say beside its function, to us and to the extensions that every server has."""

    annotations: ToolAnnotations | Mapping[str, Any] | None
    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None
    extensions: Mapping[str, Mapping[str, Any]]


class ResourceOptions(Described, total=False):
    """What a resource may say beside its function."""

    mime_type: str | None
    size: int | None
    annotations: Annotations | Mapping[str, Any] | None


class RunOptions(TypedDict, total=False):
    """What `Server.run` takes beside the transports: the other members of `serve_options.Settings`."""

    http_settings: HttpSettings | None
    ws_limits: Limits | None
    descriptors: tuple[int, int] | None
    token: str | None
    insecure: bool
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    grace: float
    max_frame_bytes: int | None
    max_memory: int | None
    max_threads: int
    thread_timeout: float
    announce: Callable[[str], None] | None
    look_over: Callable[[], None] | None
