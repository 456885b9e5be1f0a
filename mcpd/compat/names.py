"""Which modules of other libraries are replaced, and where their names are defined here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import FunctionType, ModuleType
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
        """Return a table whose names are all defined in one module, or with no names, every name of the module."""
        return cls(dict.fromkeys(names, home)) if names else cls({}, (home,))

    @classmethod
    def second(cls, home: str, *names: str) -> Names:
        """Return a table for version 2 of the official SDK, whose classes have a 2 behind their names here."""
        return cls({name: f"{home}:{name}2" for name in names})

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
        and (not isinstance(value, type | FunctionType) or value.__module__ in (module.__name__, "builtins"))
    )


# -- names of several modules ----------------------------------------------------------------

_ELICITED = ("AcceptedElicitation", "CancelledElicitation", "DeclinedElicitation")
_ELICITATION = Names.of("elicitation")
_MEDIA = Names.of("contents", "Audio", "Image")
_LOGGING = Names.of("settings", "configure_logging", "get_logger")
_ERRORS = Names.of("errors") | Names({"MCPError": "errors:McpError", "MCPServerError": "errors:FastMCPError"})
_TYPES = Names.of("types.base") | Names.of("types.features") | Names.of("types.client_requests")
_LOWLEVEL = Names.of("lowlevel.server", "NotificationOptions", "Server")

# -- the official SDK, both versions ---------------------------------------------------------

_SDK = {
    "mcp": _TYPES
    | Names.of("lowlevel.session", "ServerSession")
    | Names.of("lowlevel.transports", "stdio_server")
    | Names.of("errors", "McpError", "UrlElicitationRequiredError")
    | Names({"MCPError": "errors:McpError", "SamplingRole": "types.base:Role"}),
    "mcp.types": _TYPES,
    "mcp_types": _TYPES,
    "mcp_types.methods": Names.of("lowlevel.methods", "CLIENT_REQUESTS", "SERVER_RESULTS"),
    "mcp.server": _LOWLEVEL
    | Names.of("lowlevel.server", "InitializationOptions")
    | Names.of("lowlevel.handlers", "CacheHint", "ServerRequestContext")
    | Names({"FastMCP": "sdk.server", "MCPServer": "sdk.mcpserver"}),
    "mcp.server.lowlevel": _LOWLEVEL,
    "mcp.server.lowlevel.server": Names.of("lowlevel.server") | Names.of("lowlevel.context", "lifespan", "request_ctx"),
    "mcp.server.lowlevel.helper_types": Names.of("lowlevel.server", "ReadResourceContents"),
    "mcp.server.models": Names.of("lowlevel.server", "InitializationOptions"),
    "mcp.server.stdio": Names.of("lowlevel.transports", "stdio_server"),
    "mcp.server.session": Names.of("lowlevel.session"),
    "mcp.server.streamable_http": Names.of("lowlevel.transports"),
    "mcp.server.transport_security": Names.of("settings", "TransportSecuritySettings"),
    "mcp.server.caching": Names.of("lowlevel.handlers", "CacheHint"),
    "mcp.server.context": Names.of("lowlevel.handlers") | Names.of("lowlevel.context", "LifespanContextT", "RequestT"),
    "mcp.server.request_state": Names.of("lowlevel.handlers", "RequestStateSecurity"),
    "mcp.server.elicitation": _ELICITATION,
    "mcp.server.auth.middleware.auth_context": Names.of("auth", "get_access_token"),
    "mcp.server.auth.provider": Names.of("auth", "AccessToken", "TokenVerifier"),
    "mcp.server.auth.settings": Names.of("auth", "AuthSettings", "ClientRegistrationOptions", "RevocationOptions"),
    "mcp.shared._httpx_utils": Names.of("lowlevel.transports", "create_mcp_http_client"),
    "mcp.shared.context": Names.of("lowlevel.context"),
    "mcp.shared.exceptions": _ERRORS,
    "mcp.shared.memory": Names.of("client", "create_connected_server_and_client_session"),
}

# -- version 1 of the official SDK -----------------------------------------------------------

_V1 = "mcp.server.fastmcp"
_V1_SERVER = Names.of("sdk.server", "Context", "FastMCP")
_TOOLS = Names.of("sdk.tools", "Tool", "ToolManager")
_RESOURCES = Names.of("sdk.resources")
_PROMPTS = Names.of("sdk.prompts")

_SDK_V1 = {
    _V1: _V1_SERVER | _MEDIA | Names.of("types.base", "Icon"),
    f"{_V1}.server": _V1_SERVER | Names({"Settings": "settings:SdkSettings"}),
    f"{_V1}.exceptions": _ERRORS,
    f"{_V1}.tools": _TOOLS,
    f"{_V1}.tools.base": _TOOLS,
    f"{_V1}.tools.tool_manager": _TOOLS,
    f"{_V1}.resources": _RESOURCES,
    f"{_V1}.resources.base": _RESOURCES,
    f"{_V1}.resources.types": _RESOURCES,
    f"{_V1}.resources.templates": _RESOURCES,
    f"{_V1}.resources.resource_manager": _RESOURCES,
    f"{_V1}.prompts": _PROMPTS,
    f"{_V1}.prompts.base": _PROMPTS,
    f"{_V1}.prompts.manager": _PROMPTS,
    f"{_V1}.utilities.types": _MEDIA,
    f"{_V1}.utilities.logging": _LOGGING,
    f"{_V1}.utilities.func_metadata": Names.of("sdk.functions", "ArgModelBase", "FuncMetadata", "func_metadata"),
    f"{_V1}.utilities.context_injection": Names({"find_context_parameter": "sdk.functions:context_parameter"}),
}

# -- version 2 of the official SDK -----------------------------------------------------------

_V2 = "mcp.server.mcpserver"
_V2_CONTEXT = Names.of("sdk.mcpserver", "Context")
_V2_RESOLVE = Names.of("sdk.resolve") | Names.of("elicitation", *_ELICITED, "ElicitationResult")
_V2_TOOLS = Names.second("sdk.tools", "Tool", "ToolManager")
_V2_SECURITY = Names.of("sdk.resources", "DEFAULT_RESOURCE_SECURITY", "ResourceSecurity")
_V2_RESOURCES = _RESOURCES | Names.second("sdk.resources", "ResourceManager", "ResourceTemplate")
_V2_PROMPTS = _PROMPTS | Names.second("sdk.prompts", "Prompt")

_SDK_V2 = {
    _V2: Names.of("sdk.mcpserver", "Context", "MCPServer")
    | _MEDIA
    | _V2_RESOLVE
    | _V2_SECURITY
    | Names.of("sdk.prompts", "AssistantMessage", "Message", "UserMessage")
    | Names.of("lowlevel.handlers", "RequestStateSecurity")
    | Names.of("types.base", "Icon"),
    f"{_V2}.server": Names.of("sdk.mcpserver", "Context", "MCPServer"),
    f"{_V2}.context": _V2_CONTEXT,
    f"{_V2}.exceptions": _ERRORS,
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
_DEPENDENCIES = _TOKEN | Names.of("fastmcp.dependencies")
_FASTMCP_TOOLS = Names.of("fastmcp.tools") | Names.of("fastmcp.results", "ToolResult")
_FASTMCP_RESOURCES = Names.of("fastmcp.resources")
_FASTMCP_PROMPTS = (
    Names.of("fastmcp.prompts")
    | Names.of("types.features", "PromptMessage")
    | Names.of("sdk.prompts", "PromptArgument")
)
_MIDDLEWARE = Names.of("fastmcp.middleware")
_BUNDLED = Names.of("fastmcp.bundled_middleware")
_TRANSFORMS = Names({"Visibility": "fastmcp.components:VisibilityTransform"})

_FASTMCP = {
    "fastmcp": _SERVER
    | _CONTEXT
    | Names.of("client", "Client")
    | Names.of("errors", "FastMCPDeprecationWarning")
    | Names({"Image": "contents:FastMCPImage", "settings": "settings", "__version__": "settings:FASTMCP_VERSION"}),
    "fastmcp.client": Names.of("client", "Client"),
    "fastmcp.client.client": Names.of("client", "CallToolResult", "Client"),
    "fastmcp.settings": Names({"Settings": "settings:FastMCPSettings", "settings": "settings"}),
    "fastmcp.exceptions": _ERRORS,
    "fastmcp.dependencies": _DEPENDENCIES,
    "fastmcp.tools": _FASTMCP_TOOLS,
    "fastmcp.tools.base": _FASTMCP_TOOLS,
    "fastmcp.tools.tool": _FASTMCP_TOOLS,
    "fastmcp.tools.function_tool": _FASTMCP_TOOLS,
    "fastmcp.resources": _FASTMCP_RESOURCES,
    "fastmcp.resources.base": _FASTMCP_RESOURCES,
    "fastmcp.resources.resource": _FASTMCP_RESOURCES,
    "fastmcp.resources.types": _FASTMCP_RESOURCES,
    "fastmcp.resources.template": _FASTMCP_RESOURCES,
    "fastmcp.resources.function_resource": _FASTMCP_RESOURCES,
    "fastmcp.prompts": _FASTMCP_PROMPTS,
    "fastmcp.prompts.base": _FASTMCP_PROMPTS,
    "fastmcp.prompts.prompt": _FASTMCP_PROMPTS,
    "fastmcp.prompts.function_prompt": _FASTMCP_PROMPTS,
    "fastmcp.server": _SERVER | _CONTEXT,
    "fastmcp.server.server": _SERVER,
    "fastmcp.server.context": _CONTEXT | Names.of("elicitation", *_ELICITED),
    "fastmcp.server.dependencies": _DEPENDENCIES,
    "fastmcp.server.elicitation": _ELICITATION,
    "fastmcp.server.lifespan": Names.of(
        "fastmcp.components", "ComposedLifespan", "ContextManagerLifespan", "Lifespan", "lifespan"
    ),
    "fastmcp.server.middleware": _MIDDLEWARE,
    "fastmcp.server.middleware.middleware": _MIDDLEWARE,
    "fastmcp.server.middleware.caching": _BUNDLED,
    "fastmcp.server.middleware.error_handling": _BUNDLED,
    "fastmcp.server.middleware.logging": _BUNDLED,
    "fastmcp.server.middleware.rate_limiting": _BUNDLED,
    "fastmcp.server.middleware.response_limiting": _BUNDLED,
    "fastmcp.server.middleware.timing": _BUNDLED,
    "fastmcp.server.auth": _TOKEN,
    "fastmcp.server.auth.auth": _TOKEN,
    "fastmcp.server.transforms": _TRANSFORMS,
    "fastmcp.server.transforms.visibility": _TRANSFORMS,
    "fastmcp.utilities.types": Names(
        {"Audio": "contents:FastMCPAudio", "File": "contents", "Image": "contents:FastMCPImage"}
    ),
    "fastmcp.utilities.logging": _LOGGING,
}

MODULES: dict[str, Names] = {**_SDK, **_SDK_V1, **_SDK_V2, **_FASTMCP}
"""The names of each module that is replaced, by the module's name."""
