"""`fastmcp.settings`: what the environment says (FASTMCP_…), else defaults."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

__all__ = ["Settings", "settings"]


class Settings(BaseModel):
    """Settings that a program may read, and change before it runs. Others that it sets are kept, and do nothing."""

    model_config = ConfigDict(extra="allow")

    transport: Literal["stdio", "http", "sse", "streamable-http"] = "stdio"
    host: str = "127.0.0.1"
    port: int = 8000
    sse_path: str = "/sse"
    message_path: str = "/messages/"
    streamable_http_path: str = "/mcp"
    debug: bool = False
    test_mode: bool = False
    log_enabled: bool = True
    log_level: str = "INFO"
    mask_error_details: bool = False
    strict_input_validation: bool = False
    stateless_http: bool = False
    json_response: bool = False
    show_server_banner: bool = True
    deprecation_warnings: bool = True
    decorator_mode: str = "function"

    @classmethod
    def of_environment(cls) -> Settings:
        """Of the environment. Raises pydantic's ValidationError for what is none."""
        values: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            text = os.environ.get(f"FASTMCP_{name.upper()}")
            if text is not None:
                reads: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
                values[name] = reads.validate_python(text.upper() if name == "log_level" else text)
        return cls(**values)


@cache
def _settings() -> Settings:
    return Settings.of_environment()


settings = _settings()
"""Those of this process."""
