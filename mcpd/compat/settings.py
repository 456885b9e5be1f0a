"""Settings of high-level servers: arguments of their constructors, environment variables (FASTMCP_…), or defaults.

Beside them are the libraries' functions for logging, and the version of `fastmcp`.
"""

import logging
import os
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json

FASTMCP_VERSION = "4.2.3"
"""The version of `fastmcp` whose lists and results are reproduced."""


class TransportSecuritySettings(BaseModel):
    """Allowed hosts and origins. mcpd checks them itself: `--allow-host`, `--allow-origin`."""

    model_config = ConfigDict(defer_build=True)

    enable_dns_rebinding_protection: bool = True
    allowed_hosts: list[str] = []
    allowed_origins: list[str] = []


class _Settings(BaseModel):
    """Settings that the libraries share. A program may change them before it runs."""

    model_config = ConfigDict(arbitrary_types_allowed=True, defer_build=True)

    debug: bool = False
    log_level: str = "INFO"
    host: str = "127.0.0.1"
    port: int = 8000
    sse_path: str = "/sse"
    message_path: str = "/messages/"
    streamable_http_path: str = "/mcp"
    json_response: bool = False
    stateless_http: bool = False

    @classmethod
    def load(cls, given: dict[str, Any]) -> Self:
        """Return the given settings, completed by the environment. Raises pydantic's ValidationError."""
        values = dict(given)
        for name, field in cls.model_fields.items():
            text = os.environ.get(f"FASTMCP_{name.upper()}")
            if text is not None and name not in given and field.annotation is not Any:
                is_list = field.annotation == list[str]
                values[name] = from_json(text) if is_list else text.upper() if name == "log_level" else text

        # Defaults alone need no validation, for which pydantic would build a validator.
        return cls(**values) if values else cls.model_construct()


class SdkSettings(_Settings):
    """`Settings` of the official SDK."""

    model_config = ConfigDict(extra="forbid")

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    mount_path: str = "/"
    warn_on_duplicate_resources: bool = True
    warn_on_duplicate_tools: bool = True
    warn_on_duplicate_prompts: bool = True
    dependencies: list[str] = []
    lifespan: Any = None
    auth: Any = None
    transport_security: Any = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Return the settings of a constructor. Raises TypeError for an unknown one."""
        unknown = [name for name in given if name not in cls.model_fields]
        if unknown:
            raise TypeError(f"FastMCP.__init__() got an unexpected keyword argument {unknown[0]!r}")

        return cls.load(given)


class FastMCPSettings(_Settings):
    """`fastmcp.settings`. Unknown settings are kept and have no effect."""

    model_config = ConfigDict(extra="allow")

    transport: Literal["stdio", "http", "sse", "streamable-http"] = "stdio"
    test_mode: bool = False
    log_enabled: bool = True
    mask_error_details: bool = False
    strict_input_validation: bool = False
    show_server_banner: bool = True
    deprecation_warnings: bool = True
    decorator_mode: str = "function"


_loaded: list[FastMCPSettings] = []


def __getattr__(name: str) -> Any:
    if name != "settings":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not _loaded:
        _loaded.append(FastMCPSettings.load({}))
    return _loaded[0]


def get_logger(name: str) -> logging.Logger:
    return logging.getLogger(name)


def configure_logging(level: str = "INFO", **_: Any) -> None:
    """Show log messages of this level and above, unless logging is configured already."""
    logging.basicConfig(level=level, format="%(message)s")
