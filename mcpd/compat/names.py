"""Which modules of other libraries are replaced, and where their names are defined here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar


class Names:
    """The names of a module of another library.

    `homes` maps names to the modules here that define them, as "lowlevel.server" or "lowlevel.server:OtherName".
    Other names are looked up in the modules of `rest`, whose public names are all found.
    """

    MISSING: ClassVar[object] = object()
    """Returned by `find` for an unknown name."""

    def __init__(self, homes: Mapping[str, str] | None = None, rest: tuple[str, ...] = ()) -> None:
        self.homes = dict(homes or {})
        self.rest = rest

    @classmethod
    def of(cls, home: str, *names: str) -> Names:
        """Return a table whose names are all defined in one module."""
        return cls(dict.fromkeys(names, home))

    def __or__(self, other: Names) -> Names:
        return Names({**self.homes, **other.homes}, (*self.rest, *other.rest))

    def find(self, name: str) -> Any:
        """Return the object of that name, or MISSING."""
        home = self.homes.get(name)
        if home is not None:
            module, _, other = home.partition(":")
            return getattr(_module(module), other or name)

        for place in self.rest:
            if not name.startswith("_") and name in _public_names(place):
                return getattr(_module(place), name)
        return self.MISSING

    def all(self) -> set[str]:
        """Return every name."""
        return set(self.homes).union(*map(_public_names, self.rest))


def _module(place: str) -> Any:
    return import_module(f"{__package__}.{place}")


@cache
def _public_names(place: str) -> frozenset[str]:
    """The names that a module defines, but not the classes and functions that it imports."""
    module = _module(place)
    return frozenset(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and (not isinstance(value, type) or value.__module__ in (module.__name__, "builtins"))
    )


# -- names of several libraries --------------------------------------------------------------

_TYPES = ("types.base", "types.features", "types.client_requests")
_ELICITED = ("AcceptedElicitation", "CancelledElicitation", "DeclinedElicitation")
_MEDIA = Names.of("contents", "Audio", "Image")
_LOGGING = Names.of("settings", "configure_logging", "get_logger")

# -- the official SDK, both versions ---------------------------------------------------------

_MCP_ERRORS = Names.of("errors", "McpError", "UrlElicitationRequiredError") | Names({"MCPError": "errors:McpError"})
_LOWLEVEL = Names.of("lowlevel.server", "NotificationOptions", "Server")
_REQUEST = Names.of(
    "lowlevel.handlers", "CallNext", "HandlerResult", "ServerMiddleware", "ServerRequestContext"
) | Names.of("lowlevel.context", "LifespanContextT", "RequestT")

_SDK = {
    "mcp": Names(
        {
            "ServerSession": "lowlevel.session",
            "stdio_server": "lowlevel.transports",
            "SamplingRole": "types.base:Role",
        },
        _TYPES,
    )
    | _MCP_ERRORS,
    "mcp.types": Names({}, _TYPES),
    "mcp_types": Names({}, _TYPES),
    "mcp_types.methods": Names.of("lowlevel.methods", "CLIENT_REQUESTS", "SERVER_RESULTS"),
    "mcp.server": _LOWLEVEL
    | Names.of("lowlevel.server", "InitializationOptions")
    | Names.of("lowlevel.handlers", "CacheHint", "ServerRequestContext")
    | Names({"FastMCP": "sdk.server", "MCPServer": "sdk.mcpserver"}),
    "mcp.server.lowlevel": _LOWLEVEL,
    "mcp.server.lowlevel.server": _LOWLEVEL
    | Names.of("lowlevel.server", "LifespanResultT", "RequestT")
    | Names.of("lowlevel.context", "lifespan", "request_ctx"),
    "mcp.server.lowlevel.helper_types": Names.of("lowlevel.server", "ReadResourceContents"),
    "mcp.server.models": Names.of("lowlevel.server", "InitializationOptions"),
    "mcp.server.stdio": Names.of("lowlevel.transports", "stdio_server"),
    "mcp.server.session": Names.of("lowlevel.session", "ServerSession", "ServerSessionT"),
    "mcp.server.streamable_http": Names.of(
        "lowlevel.transports", "EventCallback", "EventId", "EventMessage", "EventStore", "StreamId"
    ),
    "mcp.server.transport_security": Names.of("settings", "TransportSecuritySettings"),
    "mcp.server.caching": Names.of("lowlevel.handlers", "CacheHint"),
    "mcp.server.context": _REQUEST,
    "mcp.server.request_state": Names.of("lowlevel.handlers", "RequestStateSecurity"),
    "mcp.server.elicitation": Names.of(
        "elicitation",
        *_ELICITED,
        "AcceptedUrlElicitation",
        "ElicitSchemaModelT",
        "ElicitationResult",
        "UrlElicitationResult",
        "elicit_url",
        "elicit_with_validation",
    ),
    "mcp.server.auth.middleware.auth_context": Names.of("auth", "get_access_token"),
    "mcp.server.auth.provider": Names.of("auth", "AccessToken", "TokenVerifier"),
    "mcp.server.auth.settings": Names.of("auth", "AuthSettings", "ClientRegistrationOptions", "RevocationOptions"),
    "mcp.shared._httpx_utils": Names.of("lowlevel.transports", "create_mcp_http_client"),
    "mcp.shared.context": Names.of("lowlevel.context", "LifespanContextT", "RequestContext", "RequestT", "SessionT"),
    "mcp.shared.exceptions": _MCP_ERRORS | Names.of("errors", "MCPDeprecationWarning"),
    "mcp.shared.memory": Names.of("client", "create_connected_server_and_client_session"),
}

# -- version 1 of the official SDK -----------------------------------------------------------

_V1 = "mcp.server.fastmcp"
_V1_TOOL = Names.of("sdk.tools", "Tool")
_V1_TOOLS = Names.of("sdk.tools", "ToolManager")
_V1_MESSAGES = Names.of("sdk.prompts", "AssistantMessage", "Message", "Prompt", "PromptArgument", "UserMessage")
_V1_RESOURCES = Names.of(
    "sdk.resources",
    "BinaryResource",
    "DirectoryResource",
    "FileResource",
    "FunctionResource",
    "HttpResource",
    "Resource",
    "TextResource",
)
_V1_TEMPLATE = Names.of("sdk.resources", "ResourceTemplate")
_V1_RESOURCE_MANAGER = Names.of("sdk.resources", "ResourceManager")
_V1_PROMPT_MANAGER = Names.of("sdk.prompts", "PromptManager")
_V1_CONTEXT = Names.of("sdk.server", "Context", "FastMCP")

_SDK_V1 = {
    _V1: _V1_CONTEXT | _MEDIA | Names.of("types.base", "Icon"),
    f"{_V1}.server": _V1_CONTEXT | Names({"Settings": "settings:SdkSettings"}),
    f"{_V1}.exceptions": Names.of(
        "errors", "FastMCPError", "InvalidSignature", "ResourceError", "ToolError", "ValidationError"
    ),
    f"{_V1}.tools": _V1_TOOL | _V1_TOOLS,
    f"{_V1}.tools.base": _V1_TOOL,
    f"{_V1}.tools.tool_manager": _V1_TOOLS,
    f"{_V1}.resources": _V1_RESOURCES | _V1_TEMPLATE | _V1_RESOURCE_MANAGER,
    f"{_V1}.resources.base": Names.of("sdk.resources", "Resource"),
    f"{_V1}.resources.types": _V1_RESOURCES,
    f"{_V1}.resources.templates": _V1_TEMPLATE,
    f"{_V1}.resources.resource_manager": _V1_RESOURCE_MANAGER,
    f"{_V1}.prompts": Names.of("sdk.prompts", "Prompt") | _V1_PROMPT_MANAGER,
    f"{_V1}.prompts.base": _V1_MESSAGES,
    f"{_V1}.prompts.manager": _V1_PROMPT_MANAGER,
    f"{_V1}.utilities.types": _MEDIA,
    f"{_V1}.utilities.logging": _LOGGING,
    f"{_V1}.utilities.func_metadata": Names.of("sdk.functions", "ArgModelBase", "FuncMetadata", "func_metadata"),
    f"{_V1}.utilities.context_injection": Names({"find_context_parameter": "sdk.functions:context_parameter"}),
}

# -- version 2 of the official SDK -----------------------------------------------------------

_V2 = "mcp.server.mcpserver"
_V2_CONTEXT = Names({"Context": "sdk.mcpserver"})
_V2_RESOLVE = Names.of("sdk.resolve", "Elicit", "ListRoots", "Resolve", "Sample") | Names.of(
    "elicitation", *_ELICITED, "ElicitationResult"
)
_V2_TOOLS = Names({"Tool": "sdk.tools:Tool2", "ToolManager": "sdk.tools:ToolManager2"})
_V2_SECURITY = Names.of("sdk.resources", "DEFAULT_RESOURCE_SECURITY", "ResourceSecurity")
_V2_RESOURCES = (
    _V1_RESOURCES
    | _V2_SECURITY
    | Names(
        {
            "ResourceManager": "sdk.resources:ResourceManager2",
            "ResourceTemplate": "sdk.resources:ResourceTemplate2",
        }
    )
)
_V2_MESSAGES = Names(
    {
        "AssistantMessage": "sdk.prompts:AssistantMessage2",
        "Message": "sdk.prompts:Message2",
        "UserMessage": "sdk.prompts:UserMessage2",
    }
)
_V2_PROMPTS = _V2_MESSAGES | Names(
    {
        "Prompt": "sdk.prompts:Prompt2",
        "PromptArgument": "sdk.prompts",
        "PromptManager": "sdk.prompts:PromptManager",
    }
)

_SDK_V2 = {
    _V2: Names({"MCPServer": "sdk.mcpserver", "Icon": "types.base"})
    | _V2_CONTEXT
    | _MEDIA
    | _V2_RESOLVE
    | _V2_MESSAGES
    | _V2_SECURITY
    | Names.of("lowlevel.handlers", "RequestStateSecurity"),
    f"{_V2}.server": Names.of("sdk.mcpserver", "MCPServer") | _V2_CONTEXT,
    f"{_V2}.context": _V2_CONTEXT,
    f"{_V2}.exceptions": Names.of(
        "errors",
        "InvalidSignature",
        "ResourceError",
        "ResourceNotFoundError",
        "ToolError",
        "UnexpectedResourceError",
        "UnexpectedToolError",
    )
    | Names({"MCPServerError": "errors:FastMCPError"}),
    f"{_V2}.resolve": _V2_RESOLVE,
    f"{_V2}.tools": _V2_TOOLS,
    f"{_V2}.tools.base": _V2_TOOLS,
    f"{_V2}.resources": _V2_RESOURCES,
    f"{_V2}.resources.base": _V2_RESOURCES,
    f"{_V2}.resources.types": _V2_RESOURCES,
    f"{_V2}.prompts": _V2_PROMPTS,
    f"{_V2}.prompts.base": _V2_PROMPTS,
    f"{_V2}.utilities.types": _MEDIA,
    f"{_V2}.utilities.logging": _LOGGING,
}

# -- fastmcp ---------------------------------------------------------------------------------

_SERVER = Names.of("fastmcp.server", "FastMCP")
_CONTEXT = Names.of("fastmcp.context", "Context")
_TOKEN = Names.of("auth", "AccessToken")
_DEPENDENCIES = _TOKEN | Names.of(
    "fastmcp.dependencies",
    "CurrentAccessToken",
    "CurrentContext",
    "CurrentFastMCP",
    "CurrentHeaders",
    "CurrentRequest",
    "Dependency",
    "Depends",
    "OptionalCurrentContext",
    "Progress",
    "TokenClaim",
    "get_access_token",
    "get_context",
    "get_http_headers",
    "get_http_request",
    "get_server",
)
_ELICITATION = Names(
    {
        "AcceptedElicitation": "elicitation:AcceptedValue",
        "CancelledElicitation": "elicitation",
        "DeclinedElicitation": "elicitation",
    }
)
_TOOLS = Names.of("fastmcp.tools", "FunctionTool", "Tool", "tool") | Names.of("fastmcp.results", "ToolResult")
_RESOURCES = Names.of(
    "fastmcp.resources",
    "BinaryResource",
    "DirectoryResource",
    "FileResource",
    "FunctionResource",
    "FunctionResourceTemplate",
    "HttpResource",
    "Resource",
    "ResourceContent",
    "ResourceResult",
    "ResourceTemplate",
    "TextResource",
    "resource",
)
_PROMPTS = Names.of(
    "fastmcp.prompts",
    "FunctionPrompt",
    "Message",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptResult",
    "prompt",
)
_MIDDLEWARE = Names.of("fastmcp.middleware", "CallNext", "Middleware", "MiddlewareContext")
_TRANSFORMS = Names({"Visibility": "fastmcp.components:VisibilityTransform"})
_BUNDLED = "fastmcp.bundled_middleware"
_BUNDLED_MODULES = {
    "timing": ("TimingMiddleware", "DetailedTimingMiddleware"),
    "logging": ("LoggingMiddleware", "StructuredLoggingMiddleware"),
    "error_handling": ("ErrorHandlingMiddleware", "RetryMiddleware"),
    "rate_limiting": ("RateLimitingMiddleware", "SlidingWindowRateLimitingMiddleware", "RateLimitError"),
    "caching": ("ResponseCachingMiddleware",),
    "response_limiting": ("ResponseLimitingMiddleware",),
}

_FASTMCP = {
    "fastmcp": _SERVER
    | _CONTEXT
    | Names.of("errors", "FastMCPDeprecationWarning")
    | Names({"Client": "client", "Image": "contents:FastMCPImage", "settings": "settings"})
    | Names({"__version__": "settings:FASTMCP_VERSION"}),
    "fastmcp.client": Names.of("client", "Client"),
    "fastmcp.client.client": Names.of("client", "CallToolResult", "Client"),
    "fastmcp.settings": Names({"Settings": "settings:FastMCPSettings", "settings": "settings"}),
    "fastmcp.exceptions": Names.of(
        "errors",
        "AuthorizationError",
        "ClientError",
        "DisabledError",
        "FastMCPDeprecationWarning",
        "FastMCPError",
        "InvalidSignature",
        "McpError",
        "NotFoundError",
        "PromptError",
        "ResourceError",
        "ToolError",
        "ValidationError",
    )
    | Names({"MCPError": "errors:McpError"}),
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
    "fastmcp.server": _SERVER | _CONTEXT,
    "fastmcp.server.server": _SERVER,
    "fastmcp.server.context": _CONTEXT | _ELICITATION,
    "fastmcp.server.dependencies": _DEPENDENCIES,
    "fastmcp.server.elicitation": _ELICITATION | Names.of("elicitation", "ScalarElicitationType"),
    "fastmcp.server.lifespan": Names.of(
        "fastmcp.components", "ComposedLifespan", "ContextManagerLifespan", "Lifespan", "lifespan"
    ),
    "fastmcp.server.middleware": _MIDDLEWARE,
    "fastmcp.server.middleware.middleware": _MIDDLEWARE,
    "fastmcp.server.auth": _TOKEN,
    "fastmcp.server.auth.auth": _TOKEN,
    "fastmcp.server.transforms": _TRANSFORMS,
    "fastmcp.server.transforms.visibility": _TRANSFORMS,
    "fastmcp.utilities.types": Names(
        {
            "Audio": "contents:FastMCPAudio",
            "File": "contents",
            "Image": "contents:FastMCPImage",
        }
    ),
    "fastmcp.utilities.logging": _LOGGING,
    **{f"fastmcp.server.middleware.{name}": Names.of(_BUNDLED, *names) for name, names in _BUNDLED_MODULES.items()},
}

MODULES: dict[str, Names] = {**_SDK, **_SDK_V1, **_SDK_V2, **_FASTMCP}
"""The names of each module that is replaced, by the module's name."""
