"""What `mcpd serve` can be told, however it was read: by click (`serve`), or without it (`quick`)."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["APPS", "LOG_HELP", "LOG_LEVELS", "Options"]

APPS = ("auto", "always", "never")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_HELP = "What to log: error, warning, info or debug, which also shows where a target failed."


class Options(Struct, kw_only=True):
    """What `mcpd serve` can be told; the defaults are the command's."""

    target: str | None = None
    stdio: bool = False
    ws: str | None = None
    http: str | None = None
    stateless: bool = False
    session_timeout: float = 1800.0
    apps: str | None = None
    strict_model_list: bool = False
    token_file: str | None = None
    insecure: bool = False
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    grace: float = 5.0
    max_message_bytes: int = 64 * 1024 * 1024
    max_memory: int | None = None
    max_threads: int = 96
    log_level: str = "info"
