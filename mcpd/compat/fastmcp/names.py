"""Which modules of `fastmcp` are found here; see `compat`."""

from __future__ import annotations

from mcpd.compat.names import Names

__all__ = ["MODULES"]

_ELICITED = ("AcceptedElicitation", "CancelledElicitation", "DeclinedElicitation")
_READY = {
    "TimingMiddleware": "timing",
    "DetailedTimingMiddleware": "timing",
    "LoggingMiddleware": "logging",
    "StructuredLoggingMiddleware": "logging",
    "ErrorHandlingMiddleware": "error_handling",
    "RetryMiddleware": "error_handling",
    "RateLimitingMiddleware": "rate_limiting",
    "SlidingWindowRateLimitingMiddleware": "rate_limiting",
    "RateLimitError": "rate_limiting",
    "ResponseCachingMiddleware": "caching",
    "ResponseLimitingMiddleware": "response_limiting",
}
_HOMES = {"timing": "watching", "logging": "watching", "error_handling": "failures"}
_HOMES.update(rate_limiting="limits", response_limiting="limits", caching="caching")

_CONTEXT = Names.of("fastmcp.context", "Context")
_SERVER = Names.of("fastmcp.server", "FastMCP")
_DEPENDENCIES = Names({}, ("fastmcp.dependencies",)).joined(Names.of("fastmcp.tokens", "AccessToken"))
_TOOLS = Names.of("fastmcp.tools", "FunctionTool", "Tool", "tool").joined(Names.of("fastmcp.results", "ToolResult"))
_RESOURCES = Names({}, ("fastmcp.resources",)).joined(
    Names.of("fastmcp.templates", "FunctionResourceTemplate", "ResourceTemplate")
)
_PROMPTS = Names({}, ("fastmcp.prompts",))
_LOGS = Names.of("fastmcp1.logs", "configure_logging", "get_logger")
_TRANSFORMS = Names({"Visibility": "fastmcp.store:VisibilityTransform"})

MODULES: dict[str, Names] = {
    "fastmcp": Names(
        {
            "FastMCP": "fastmcp.server",
            "Client": "fastmcp.client",
            "Context": "fastmcp.context",
            "settings": "fastmcp.settings",
            "FastMCPDeprecationWarning": "fastmcp.errors",
            "Image": "fastmcp.media",
            "__version__": "fastmcp.version:VERSION",
        }
    ),
    "fastmcp.client": Names.of("fastmcp.client", "Client"),
    "fastmcp.client.client": Names.of("fastmcp.client", "CallToolResult", "Client"),
    "fastmcp.settings": Names({}, ("fastmcp.settings",)),
    "fastmcp.exceptions": Names({"MCPError": "fastmcp.errors:McpError"}, ("fastmcp.errors",)),
    "fastmcp.dependencies": _DEPENDENCIES,
    "fastmcp.tools": _TOOLS,
    "fastmcp.tools.base": _TOOLS,
    "fastmcp.tools.tool": _TOOLS,
    "fastmcp.tools.function_tool": _TOOLS,
    "fastmcp.resources": _RESOURCES,
    "fastmcp.resources.base": _RESOURCES,
    "fastmcp.resources.resource": _RESOURCES,
    "fastmcp.resources.types": _RESOURCES,
    "fastmcp.resources.template": _RESOURCES,
    "fastmcp.resources.function_resource": _RESOURCES,
    "fastmcp.prompts": _PROMPTS,
    "fastmcp.prompts.base": _PROMPTS,
    "fastmcp.prompts.prompt": _PROMPTS,
    "fastmcp.prompts.function_prompt": _PROMPTS,
    "fastmcp.server": _SERVER.joined(_CONTEXT),
    "fastmcp.server.server": _SERVER,
    "fastmcp.server.context": _CONTEXT.joined(Names.of("fastmcp.elicitation", *_ELICITED)),
    "fastmcp.server.dependencies": _DEPENDENCIES,
    "fastmcp.server.elicitation": Names.of("fastmcp.elicitation", *_ELICITED, "ScalarElicitationType"),
    "fastmcp.server.lifespan": Names({}, ("fastmcp.lifespans",)),
    "fastmcp.server.middleware": Names({}, ("fastmcp.middleware",)),
    "fastmcp.server.middleware.middleware": Names({}, ("fastmcp.middleware",)),
    "fastmcp.server.auth": Names.of("fastmcp.tokens", "AccessToken"),
    "fastmcp.server.auth.auth": Names.of("fastmcp.tokens", "AccessToken"),
    "fastmcp.server.transforms": _TRANSFORMS,
    "fastmcp.server.transforms.visibility": _TRANSFORMS,
    "fastmcp.utilities": Names(),
    "fastmcp.utilities.types": Names.of("fastmcp.media", "Audio", "File", "Image"),
    "fastmcp.utilities.logging": _LOGS,
}
for _name, _module in _READY.items():
    _ready = MODULES.setdefault(f"fastmcp.server.middleware.{_module}", Names())
    _ready.homes[_name] = f"fastmcp.ready.{_HOMES[_module]}"
