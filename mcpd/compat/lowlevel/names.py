"""Which modules of version 1 of the official SDK are found here, beside FastMCP's; see `compat`."""

from __future__ import annotations

from mcpd.compat.names import Names

__all__ = ["MODULES", "TYPES"]

TYPES = tuple(
    f"types.{chapter}"
    for chapter in (
        "content",
        "tools",
        "resources",
        "prompts",
        "lifecycle",
        "notifications",
        "asking",
        "rounds",
        "errors",
        "messages",
        "base",
    )
)

_SERVER = Names(
    {
        "Server": "lowlevel.server",
        "LifespanResultT": "lowlevel.server",
        "RequestT": "lowlevel.server",
        "lifespan": "lowlevel.server",
        "NotificationOptions": "lowlevel.options",
        "request_ctx": "lowlevel.context",
    }
)

MODULES: dict[str, Names] = {
    "mcp": Names(
        {
            "ServerSession": "lowlevel.session",
            "stdio_server": "lowlevel.stdio",
            "McpError": "exceptions",
            "UrlElicitationRequiredError": "exceptions",
            "SamplingRole": "types.base:Role",
        },
        TYPES,
    ),
    "mcp.types": Names({}, TYPES),
    "mcp.server": Names(
        {
            "Server": "lowlevel.server",
            "NotificationOptions": "lowlevel.options",
            "InitializationOptions": "lowlevel.options",
            "FastMCP": "fastmcp1.server",
        }
    ),
    "mcp.server.lowlevel": Names.of("lowlevel.options", "NotificationOptions").joined(
        Names.of("lowlevel.server", "Server")
    ),
    "mcp.server.lowlevel.server": _SERVER,
    "mcp.server.lowlevel.helper_types": Names.of("lowlevel.options", "ReadResourceContents"),
    "mcp.server.models": Names.of("lowlevel.options", "InitializationOptions"),
    "mcp.server.stdio": Names.of("lowlevel.stdio", "stdio_server"),
    "mcp.server.session": Names.of("lowlevel.session", "ServerSession", "ServerSessionT"),
    "mcp.server.auth": Names(),
    "mcp.server.auth.middleware": Names(),
    "mcp.server.auth.middleware.auth_context": Names.of("auth", "get_access_token"),
    "mcp.server.auth.provider": Names.of("auth", "AccessToken", "TokenVerifier"),
    "mcp.server.auth.settings": Names.of("auth", "AuthSettings", "ClientRegistrationOptions", "RevocationOptions"),
    "mcp.shared": Names(),
    "mcp.shared._httpx_utils": Names({}, ("lowlevel.http_client",)),
    "mcp.shared.memory": Names.of("memory", "create_connected_server_and_client_session"),
    "mcp.server.streamable_http": Names({}, ("lowlevel.events",)),
    "mcp.shared.exceptions": Names.of("exceptions", "McpError", "UrlElicitationRequiredError"),
    "mcp.shared.context": Names.of("lowlevel.context", "RequestContext", "LifespanContextT", "RequestT", "SessionT"),
}
