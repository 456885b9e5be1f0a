"""Which modules of other libraries are replaced, and where their names are defined here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

MISSING: Any = object()
"""Returned by `Names.find` for an unknown name."""


class Names(NamedTuple):
    """The names of a module of another library.

    `homes` maps names to the modules here that define them, as "lowlevel.server" or "lowlevel.server:OtherName".
    Other names are looked up in the modules of `others`, whose public names are all found.
    """

    homes: Mapping[str, str] = {}
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, home: str, names: str = "") -> Names:
        """Return a table of the words in `names`, all defined in one module; by default of all names in that module."""
        return cls(dict.fromkeys(names.split(), home)) if names else cls({}, (home,))

    def __or__(self, other: Names) -> Names:
        return Names({**self.homes, **other.homes}, (*self.others, *other.others))

    def find(self, name: str) -> Any:
        """Return the object of that name, or MISSING."""
        home = self.homes.get(name)
        if home is not None:
            module, _, other = home.partition(":")
            return getattr(_module(module), other or name)

        for place in self.others:
            if not name.startswith("_") and name in _public_names(place):
                return getattr(_module(place), name)
        return MISSING

    def all(self) -> set[str]:
        return set(self.homes).union(*map(_public_names, self.others))


def _module(place: str) -> Any:
    return import_module(f"{__package__}.{place}")


@cache
def _public_names(place: str) -> frozenset[str]:
    # The names that a module defines, but not the classes and functions that it imports.
    module = _module(place)
    return frozenset(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and (not isinstance(value, type | FunctionType) or value.__module__ in (module.__name__, "builtins"))
    )


def _package(package: str, names: Names, modules: str) -> dict[str, Names]:
    return dict.fromkeys((package, *(f"{package}.{module}" for module in modules.split())), names)


# -- names of several modules ----------------------------------------------------------------

_ELICITED = "AcceptedElicitation CancelledElicitation DeclinedElicitation"
_ELICITATION = Names.of("elicitation")
_MEDIA = Names.of("contents", "Audio Image")
_LOGGING = Names.of("serving", "configure_logging get_logger")
_ERRORS = Names.of("errors") | Names({"MCPError": "errors:McpError", "MCPServerError": "errors:FastMCPError"})
_TYPES = Names.of("types.features") | Names.of("types.client_requests")
_LOWLEVEL = Names.of("lowlevel.server", "NotificationOptions Server")
_SECURITY = Names.of("lowlevel.session", "RequestStateSecurity")
_CACHE_HINT = Names.of("lowlevel.session", "CacheHint")
_OPTIONS = Names.of("lowlevel.server", "InitializationOptions")
_STDIO = Names.of("lowlevel.server", "stdio_server")

# -- the official SDK, both versions ---------------------------------------------------------

_SDK = {
    "mcp": _TYPES
    | _STDIO
    | Names.of("lowlevel.session", "ServerSession")
    | Names.of("errors", "McpError UrlElicitationRequiredError")
    | Names({"MCPError": "errors:McpError", "SamplingRole": "types.features:Role"}),
    "mcp.types": _TYPES,
    "mcp_types": _TYPES,
    "mcp_types.methods": Names.of("lowlevel.wire", "CLIENT_REQUESTS SERVER_RESULTS"),
    "mcp.server": _LOWLEVEL
    | _OPTIONS
    | _CACHE_HINT
    | Names.of("lowlevel.session", "ServerRequestContext")
    | Names({"FastMCP": "sdk.server", "MCPServer": "sdk.mcpserver"}),
    "mcp.server.lowlevel": _LOWLEVEL,
    "mcp.server.lowlevel.server": Names.of("lowlevel.server") | Names.of("lowlevel.session", "lifespan request_ctx"),
    "mcp.server.lowlevel.helper_types": Names.of("lowlevel.server", "ReadResourceContents"),
    "mcp.server.models": _OPTIONS,
    "mcp.server.stdio": _STDIO,
    "mcp.server.session": Names.of("lowlevel.session"),
    "mcp.server.streamable_http": Names.of("lowlevel.server", "EventStore"),
    "mcp.server.transport_security": Names.of("serving", "TransportSecuritySettings"),
    "mcp.server.caching": _CACHE_HINT,
    "mcp.server.context": Names.of("lowlevel.session"),
    "mcp.server.request_state": _SECURITY,
    "mcp.server.elicitation": _ELICITATION,
    "mcp.server.auth.middleware.auth_context": Names.of("auth", "get_access_token"),
    "mcp.server.auth.provider": Names.of("auth", "AccessToken TokenVerifier"),
    "mcp.server.auth.settings": Names.of("auth", "AuthSettings ClientRegistrationOptions RevocationOptions"),
    "mcp.shared._httpx_utils": Names.of("lowlevel.server", "create_mcp_http_client"),
    "mcp.shared.context": Names.of("lowlevel.session"),
    "mcp.shared.exceptions": _ERRORS,
    "mcp.shared.memory": Names.of("client", "create_connected_server_and_client_session"),
}

# -- version 1 of the official SDK -----------------------------------------------------------

_V1 = "mcp.server.fastmcp"
_V1_SERVER = Names.of("sdk.server", "Context FastMCP")
_PROMPT_NAMES = "AssistantMessage Message PromptArgument PromptManager UserMessage"
_RESOURCES = Names.of(
    "sdk.components",
    "BinaryResource DirectoryResource FileResource FunctionResource HttpResource Resource ResourceManager "
    "ResourceTemplate TextResource",
)

_SDK_V1 = {
    _V1: _V1_SERVER | _MEDIA | Names.of("types.features", "Icon"),
    f"{_V1}.server": _V1_SERVER | Names({"Settings": "serving:SdkSettings"}),
    f"{_V1}.exceptions": _ERRORS,
    **_package(f"{_V1}.tools", Names.of("sdk.components", "Tool ToolManager"), "base tool_manager"),
    **_package(f"{_V1}.resources", _RESOURCES, "base types templates resource_manager"),
    **_package(f"{_V1}.prompts", Names.of("sdk.components", f"Prompt {_PROMPT_NAMES}"), "base manager"),
    f"{_V1}.utilities.types": _MEDIA,
    f"{_V1}.utilities.logging": _LOGGING,
    f"{_V1}.utilities.func_metadata": Names.of("sdk.functions", "ArgModelBase FuncMetadata func_metadata"),
    f"{_V1}.utilities.context_injection": Names({"find_context_parameter": "sdk.functions:context_parameter"}),
}

# -- version 2 of the official SDK -----------------------------------------------------------

_V2 = "mcp.server.mcpserver"
_V2_SERVER = Names.of("sdk.mcpserver", "Context MCPServer")
_V2_RESOLVE = Names.of("sdk.mcpserver", "Elicit ListRoots Resolve Sample")
_V2_RESOLVE |= Names.of("elicitation", f"{_ELICITED} ElicitationResult")
_V2_RESOURCES = _RESOURCES | Names.of(
    "sdk.mcpserver", "DEFAULT_RESOURCE_SECURITY ResourceManager ResourceSecurity ResourceTemplate"
)

_SDK_V2 = {
    _V2: _V2_SERVER
    | _MEDIA
    | _V2_RESOLVE
    | _SECURITY
    | Names.of("sdk.mcpserver", "DEFAULT_RESOURCE_SECURITY ResourceSecurity")
    | Names.of("sdk.components", "AssistantMessage Message UserMessage")
    | Names.of("types.features", "Icon"),
    f"{_V2}.server": _V2_SERVER,
    f"{_V2}.context": Names.of("sdk.mcpserver", "Context"),
    f"{_V2}.exceptions": _ERRORS,
    f"{_V2}.resolve": _V2_RESOLVE,
    **_package(f"{_V2}.tools", Names.of("sdk.mcpserver", "Tool ToolManager"), "base"),
    **_package(f"{_V2}.resources", _V2_RESOURCES, "base types"),
    **_package(
        f"{_V2}.prompts", Names.of("sdk.components", _PROMPT_NAMES) | Names.of("sdk.mcpserver", "Prompt"), "base"
    ),
    f"{_V2}.utilities.types": _MEDIA,
    f"{_V2}.utilities.logging": _LOGGING,
}

# -- fastmcp ---------------------------------------------------------------------------------

_SERVER = Names.of("fastmcp.server", "FastMCP")
_CONTEXT = Names.of("fastmcp.context", "Context")
_TOKEN = Names.of("auth", "AccessToken")
_DEPENDENCIES = _TOKEN | Names.of(
    "fastmcp.context",
    "CurrentAccessToken CurrentContext CurrentFastMCP CurrentHeaders CurrentRequest Dependency Depends "
    "OptionalCurrentContext Progress TokenClaim get_access_token get_context get_http_headers get_http_request "
    "get_server",
)
_FASTMCP_TOOLS = Names.of("fastmcp.components", "FunctionTool NotSet Tool tool")
_FASTMCP_TOOLS |= Names.of("fastmcp.functions", "ToolResult")
_FASTMCP_RESOURCES = Names.of(
    "fastmcp.components",
    "BinaryResource DirectoryResource FileResource FunctionResource FunctionResourceTemplate HttpResource Resource "
    "ResourceContent ResourceResult ResourceTemplate TextResource resource",
)
_FASTMCP_PROMPTS = Names.of("fastmcp.components", "FunctionPrompt Message Prompt PromptResult prompt")
_FASTMCP_PROMPTS |= Names.of("types.features", "PromptMessage") | Names.of("sdk.components", "PromptArgument")

_FASTMCP = {
    "fastmcp": _SERVER
    | _CONTEXT
    | Names.of("client", "Client")
    | Names.of("errors", "FastMCPDeprecationWarning")
    | Names({"Image": "contents:FastMCPImage", "settings": "serving", "__version__": "serving:FASTMCP_VERSION"}),
    **_package("fastmcp.client", Names.of("client", "CallToolResult Client"), "client"),
    "fastmcp.settings": Names({"Settings": "serving:FastMCPSettings", "settings": "serving"}),
    "fastmcp.exceptions": _ERRORS,
    "fastmcp.dependencies": _DEPENDENCIES,
    **_package("fastmcp.tools", _FASTMCP_TOOLS, "base tool function_tool"),
    **_package("fastmcp.resources", _FASTMCP_RESOURCES, "base resource types template function_resource"),
    **_package("fastmcp.prompts", _FASTMCP_PROMPTS, "base prompt function_prompt"),
    **_package("fastmcp.server", _SERVER | _CONTEXT, "server"),
    "fastmcp.server.context": _CONTEXT | Names.of("elicitation", _ELICITED),
    "fastmcp.server.dependencies": _DEPENDENCIES,
    "fastmcp.server.elicitation": _ELICITATION,
    "fastmcp.server.lifespan": Names.of("fastmcp.base", "ContextManagerLifespan Lifespan lifespan"),
    **_package(
        "fastmcp.server.middleware",
        Names.of("fastmcp.middleware"),
        "middleware caching error_handling logging rate_limiting response_limiting timing",
    ),
    **_package("fastmcp.server.auth", _TOKEN, "auth"),
    **_package("fastmcp.server.transforms", Names({"Visibility": "fastmcp.base:VisibilityTransform"}), "visibility"),
    "fastmcp.utilities.types": Names(
        {"Audio": "contents:FastMCPAudio", "File": "contents", "Image": "contents:FastMCPImage"}
    ),
    "fastmcp.utilities.logging": _LOGGING,
}

MODULES: dict[str, Names] = {**_SDK, **_SDK_V1, **_SDK_V2, **_FASTMCP}
"""The names of each module that is replaced, by the module's name."""
