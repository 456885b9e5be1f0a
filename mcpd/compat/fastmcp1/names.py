"""Which modules of `mcp.server.fastmcp` are found here; see `compat`."""

from __future__ import annotations

from mcpd.compat.names import Names

__all__ = ["MODULES"]

_FASTMCP = "mcp.server.fastmcp"

MODULES: dict[str, Names] = {
    _FASTMCP: Names(
        {
            "FastMCP": "fastmcp1.server",
            "Context": "fastmcp1.context",
            "Image": "fastmcp1.media",
            "Audio": "fastmcp1.media",
            "Icon": "types.content",
        }
    ),
    f"{_FASTMCP}.server": Names(
        {"FastMCP": "fastmcp1.server", "Context": "fastmcp1.context", "Settings": "fastmcp1.settings"}
    ),
    f"{_FASTMCP}.exceptions": Names({}, ("fastmcp1.errors",)),
    f"{_FASTMCP}.tools": Names.of("fastmcp1.tools", "Tool", "ToolManager"),
    f"{_FASTMCP}.tools.base": Names.of("fastmcp1.tools", "Tool"),
    f"{_FASTMCP}.tools.tool_manager": Names.of("fastmcp1.tools", "ToolManager"),
    f"{_FASTMCP}.resources": Names({}, ("fastmcp1.resources", "fastmcp1.templates")),
    f"{_FASTMCP}.resources.base": Names.of("fastmcp1.resources", "Resource"),
    f"{_FASTMCP}.resources.types": Names({}, ("fastmcp1.resources",)),
    f"{_FASTMCP}.resources.templates": Names.of("fastmcp1.templates", "ResourceTemplate"),
    f"{_FASTMCP}.resources.resource_manager": Names.of("fastmcp1.templates", "ResourceManager"),
    f"{_FASTMCP}.prompts": Names.of("fastmcp1.prompts", "Prompt", "PromptManager"),
    f"{_FASTMCP}.prompts.base": Names({}, ("fastmcp1.prompts",)),
    f"{_FASTMCP}.prompts.manager": Names.of("fastmcp1.prompts", "PromptManager"),
    f"{_FASTMCP}.utilities": Names(),
    f"{_FASTMCP}.utilities.types": Names.of("fastmcp1.media", "Audio", "Image"),
    f"{_FASTMCP}.utilities.logging": Names({}, ("fastmcp1.logs",)),
    f"{_FASTMCP}.utilities.func_metadata": Names.of(
        "fastmcp1.signature", "ArgModelBase", "FuncMetadata", "func_metadata"
    ),
    f"{_FASTMCP}.utilities.context_injection": Names(
        {"find_context_parameter": "fastmcp1.signature:context_parameter"}
    ),
    "mcp.server.elicitation": Names({}, ("elicitation",)),
    "mcp.server.transport_security": Names.of("fastmcp1.settings", "TransportSecuritySettings"),
}
