"""`Settings` of a FastMCP server: what its constructor was given, else the environment (FASTMCP_…), else a default."""

import os
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

__all__ = ["Settings", "TransportSecuritySettings"]


class TransportSecuritySettings(BaseModel):
    """Which hosts and origins may call. mcpd guards these itself: `--allow-host`, `--allow-origin`."""

    model_config = ConfigDict(defer_build=True)

    enable_dns_rebinding_protection: bool = True
    allowed_hosts: list[str] = []
    allowed_origins: list[str] = []


class Settings(BaseModel):
    """Settings that a program may read, and change before it runs."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, defer_build=True)

    debug: bool = False
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    host: str = "127.0.0.1"
    port: int = 8000
    mount_path: str = "/"
    sse_path: str = "/sse"
    message_path: str = "/messages/"
    streamable_http_path: str = "/mcp"
    json_response: bool = False
    stateless_http: bool = False
    warn_on_duplicate_resources: bool = True
    warn_on_duplicate_tools: bool = True
    warn_on_duplicate_prompts: bool = True
    dependencies: list[str] = []
    lifespan: Any = None
    auth: Any = None
    transport_security: Any = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Settings":
        """The settings; raises TypeError for one that there is not."""
        unknown = [name for name in given if name not in cls.model_fields]
        if unknown:
            raise TypeError(f"FastMCP.__init__() got an unexpected keyword argument {unknown[0]!r}")
        values = dict(given)
        for name, field in cls.model_fields.items():
            text = os.environ.get(f"FASTMCP_{name.upper()}")
            if text is not None and name not in given and name not in ("lifespan", "auth", "transport_security"):
                reads = TypeAdapter[Any](field.rebuild_annotation())
                values[name] = reads.validate_json(text) if name == "dependencies" else reads.validate_python(text)
        # All defaults need no look at them, for which pydantic would have to build what looks.
        return cls(**values) if values else cls.model_construct()
