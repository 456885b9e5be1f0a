"""Which modules of version 2 of the official SDK are found here, beside those of version 1; see `compat`."""

from __future__ import annotations

from mcpd.compat.lowlevel.names import TYPES
from mcpd.compat.names import Names

__all__ = ["MODULES"]

_SERVER = "mcp.server.mcpserver"
_MEDIA = Names.of("fastmcp1.media", "Audio", "Image")
_CONTEXT = Names.of("mcpserver.context", "Context")
_RESOLVE = Names.of("mcpserver.resolve", "Elicit", "ListRoots", "Resolve", "Sample").joined(
    Names.of("elicitation", "AcceptedElicitation", "CancelledElicitation", "DeclinedElicitation", "ElicitationResult")
)
_TOOLS = Names.of("mcpserver.tools", "Tool", "ToolManager")
_RESOURCES = Names({}, ("mcpserver.resources", "fastmcp1.resources"))
_PROMPTS = Names({}, ("mcpserver.prompts",)).joined(Names.of("fastmcp1.prompts", "PromptArgument"))
_REQUEST = Names.of(
    "mcpserver.requests", "CallNext", "HandlerResult", "ServerMiddleware", "ServerRequestContext"
).joined(Names.of("lowlevel.context", "LifespanContextT", "RequestT"))

MODULES: dict[str, Names] = {
    "mcp_types": Names({}, TYPES),
    "mcp_types.methods": Names({}, ("mcpserver.methods",)),
    "mcp": Names({"MCPError": "exceptions:McpError"}),
    "mcp.server": Names(
        {"MCPServer": "mcpserver.server", "ServerRequestContext": "mcpserver.requests", "CacheHint": "mcpserver.hints"}
    ),
    "mcp.server.caching": Names.of("mcpserver.hints", "CacheHint"),
    "mcp.server.context": _REQUEST,
    _SERVER: Names({"MCPServer": "mcpserver.server", "Icon": "types.content"})
    .joined(_CONTEXT)
    .joined(_MEDIA)
    .joined(_RESOLVE)
    .joined(Names.of("mcpserver.prompts", "AssistantMessage", "Message", "UserMessage"))
    .joined(Names.of("mcpserver.resources", "DEFAULT_RESOURCE_SECURITY", "ResourceSecurity"))
    .joined(Names.of("mcpserver.hints", "RequestStateSecurity")),
    f"{_SERVER}.server": Names.of("mcpserver.server", "MCPServer").joined(_CONTEXT),
    f"{_SERVER}.context": _CONTEXT,
    f"{_SERVER}.exceptions": Names({}, ("mcpserver.errors",)),
    f"{_SERVER}.resolve": _RESOLVE,
    f"{_SERVER}.tools": _TOOLS,
    f"{_SERVER}.tools.base": _TOOLS,
    f"{_SERVER}.resources": _RESOURCES,
    f"{_SERVER}.resources.base": _RESOURCES,
    f"{_SERVER}.resources.types": _RESOURCES,
    f"{_SERVER}.prompts": _PROMPTS,
    f"{_SERVER}.prompts.base": _PROMPTS,
    f"{_SERVER}.utilities": Names(),
    f"{_SERVER}.utilities.types": _MEDIA,
    f"{_SERVER}.utilities.logging": Names({}, ("fastmcp1.logs",)),
    "mcp.server.request_state": Names.of("mcpserver.hints", "RequestStateSecurity"),
    "mcp.shared.exceptions": Names({"MCPError": "exceptions:McpError", "MCPDeprecationWarning": "mcpserver.hints"}),
}
