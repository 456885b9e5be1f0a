"""mcpd: an MCP daemon and library. The public names; all other modules are internal and may change.

Loaded by attribute access, so that `import mcpd` costs nothing that is not used.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as type checkers know it; `typing` is loaded when the collector rests (`cli.main`)

if TYPE_CHECKING:
    from mcpd.client import Callbacks as Callbacks, Client as Client, ClientLimits as ClientLimits
    from mcpd.client.auth.settings import (
        ClientCredentials as ClientCredentials,
        EnterpriseManaged as EnterpriseManaged,
        OAuth as OAuth,
        PrivateKeyJwt as PrivateKeyJwt,
        WorkloadIdentity as WorkloadIdentity,
    )
    from mcpd.client.group import ClientGroup as ClientGroup
    from mcpd.context.context import Context as Context
    from mcpd.context.forms import choices as choices
    from mcpd.context.questions import (
        Answer as Answer,
        elicit_form as elicit_form,
        elicit_url as elicit_url,
        list_roots as list_roots,
        sample as sample,
    )
    from mcpd.context.sync import SyncContext as SyncContext
    from mcpd.errors import (
        AuthorizationFailed as AuthorizationFailed,
        AuthorizationRequired as AuthorizationRequired,
        CannotConnect as CannotConnect,
        ConnectionLost as ConnectionLost,
        HttpError as HttpError,
        McpdError as McpdError,
        ProtocolError as ProtocolError,
        RemoteError as RemoteError,
        RequestTimeout as RequestTimeout,
        ResourceNotFound as ResourceNotFound,
        ResultMismatch as ResultMismatch,
        SessionLost as SessionLost,
        ToolError as ToolError,
    )
    from mcpd.extensions.ui.results import ViewResult as ViewResult, view_result as view_result
    from mcpd.extensions.ui.views.view import View as View
    from mcpd.handlers.middleware import CallNext as CallNext, MiddlewareRequest as MiddlewareRequest
    from mcpd.handlers.rate_limit import RateLimit as RateLimit
    from mcpd.handlers.result_limit import ResultLimit as ResultLimit
    from mcpd.host.hooks import Hooks as Hooks
    from mcpd.host.host import Host as Host
    from mcpd.host.options import HostOptions as HostOptions
    from mcpd.observer import (
        ObservedCall as ObservedCall,
        ObservedFrame as ObservedFrame,
        Observer as Observer,
        Outcome as Outcome,
    )
    from mcpd.principal import ANONYMOUS as ANONYMOUS, Principal as Principal
    from mcpd.registry.cache import CacheHint as CacheHint
    from mcpd.registry.content import audio as audio, embedded as embedded, image as image, link as link, text as text
    from mcpd.registry.depends import Depends as Depends
    from mcpd.registry.routes import RouteRequest as RouteRequest, RouteResponse as RouteResponse
    from mcpd.registry.rules import CatalogEntry as CatalogEntry
    from mcpd.server import Server as Server
    from mcpd.sources.marks import tool as tool
    from mcpd.sources.skill_files import add_skills as add_skills
    from mcpd.transports.authentication import Authenticator as Authenticator, Refusal as Refusal
    from mcpd.transports.http_client.options import Challenge as Challenge, HttpOptions as HttpOptions
    from mcpd.types.base import Icon as Icon, Params as Params, Result as Result
    from mcpd.types.content import (
        AudioContent as AudioContent,
        BlobResourceContents as BlobResourceContents,
        ContentBlock as ContentBlock,
        EmbeddedResource as EmbeddedResource,
        ImageContent as ImageContent,
        ResourceLink as ResourceLink,
        TextContent as TextContent,
        TextResourceContents as TextResourceContents,
    )
    from mcpd.types.elicitation import (
        ElicitFormParams as ElicitFormParams,
        ElicitResult as ElicitResult,
        ElicitUrlParams as ElicitUrlParams,
    )
    from mcpd.types.lifecycle import Implementation as Implementation
    from mcpd.types.notifications import LogMessageParams as LogMessageParams
    from mcpd.types.prompts import GetPromptResult as GetPromptResult, Prompt as Prompt, PromptMessage as PromptMessage
    from mcpd.types.resources import (
        ReadResourceResult as ReadResourceResult,
        Resource as Resource,
        ResourceTemplate as ResourceTemplate,
    )
    from mcpd.types.sampling import (
        CreateMessageParams as CreateMessageParams,
        CreateMessageResult as CreateMessageResult,
        Root as Root,
        SamplingMessage as SamplingMessage,
    )
    from mcpd.types.tools import CallToolResult as CallToolResult, Tool as Tool, ToolAnnotations as ToolAnnotations

__version__ = "0.1.0"

__all__ = [
    "ANONYMOUS",
    "Answer",
    "AudioContent",
    "Authenticator",
    "AuthorizationFailed",
    "AuthorizationRequired",
    "BlobResourceContents",
    "CacheHint",
    "CallNext",
    "CallToolResult",
    "Callbacks",
    "CannotConnect",
    "CatalogEntry",
    "Challenge",
    "Client",
    "ClientCredentials",
    "ClientGroup",
    "ClientLimits",
    "ConnectionLost",
    "ContentBlock",
    "Context",
    "CreateMessageParams",
    "CreateMessageResult",
    "Depends",
    "ElicitFormParams",
    "ElicitResult",
    "ElicitUrlParams",
    "EmbeddedResource",
    "EnterpriseManaged",
    "GetPromptResult",
    "Hooks",
    "Host",
    "HostOptions",
    "HttpError",
    "HttpOptions",
    "Icon",
    "ImageContent",
    "Implementation",
    "LogMessageParams",
    "McpdError",
    "MiddlewareRequest",
    "OAuth",
    "ObservedCall",
    "ObservedFrame",
    "Observer",
    "Outcome",
    "Params",
    "Principal",
    "PrivateKeyJwt",
    "Prompt",
    "PromptMessage",
    "ProtocolError",
    "RateLimit",
    "ReadResourceResult",
    "Refusal",
    "RemoteError",
    "RequestTimeout",
    "Resource",
    "ResourceLink",
    "ResourceNotFound",
    "ResourceTemplate",
    "Result",
    "ResultLimit",
    "ResultMismatch",
    "Root",
    "RouteRequest",
    "RouteResponse",
    "SamplingMessage",
    "Server",
    "SessionLost",
    "SyncContext",
    "TextContent",
    "TextResourceContents",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "View",
    "ViewResult",
    "WorkloadIdentity",
    "__version__",
    "add_skills",
    "audio",
    "choices",
    "elicit_form",
    "elicit_url",
    "embedded",
    "image",
    "link",
    "list_roots",
    "sample",
    "text",
    "tool",
    "view_result",
]

_HOMES = {
    "ClientCredentials": "client.auth.settings",
    "EnterpriseManaged": "client.auth.settings",
    "OAuth": "client.auth.settings",
    "PrivateKeyJwt": "client.auth.settings",
    "WorkloadIdentity": "client.auth.settings",
    "AuthorizationFailed": "errors",
    "AuthorizationRequired": "errors",
    "ANONYMOUS": "principal",
    "Answer": "context.questions",
    "AudioContent": "types.content",
    "Authenticator": "transports.authentication",
    "BlobResourceContents": "types.content",
    "CacheHint": "registry.cache",
    "CallNext": "handlers.middleware",
    "CallToolResult": "types.tools",
    "Callbacks": "client",
    "CannotConnect": "errors",
    "CatalogEntry": "registry.rules",
    "Challenge": "transports.http_client.options",
    "Client": "client",
    "ClientGroup": "client.group",
    "ClientLimits": "client",
    "ConnectionLost": "errors",
    "ContentBlock": "types.content",
    "Context": "context.context",
    "CreateMessageParams": "types.sampling",
    "CreateMessageResult": "types.sampling",
    "Depends": "registry.depends",
    "ElicitFormParams": "types.elicitation",
    "ElicitResult": "types.elicitation",
    "ElicitUrlParams": "types.elicitation",
    "EmbeddedResource": "types.content",
    "GetPromptResult": "types.prompts",
    "Hooks": "host.hooks",
    "Host": "host.host",
    "HostOptions": "host.options",
    "HttpError": "errors",
    "HttpOptions": "transports.http_client.options",
    "Icon": "types.base",
    "ImageContent": "types.content",
    "Implementation": "types.lifecycle",
    "LogMessageParams": "types.notifications",
    "McpdError": "errors",
    "MiddlewareRequest": "handlers.middleware",
    "ObservedCall": "observer",
    "ObservedFrame": "observer",
    "Observer": "observer",
    "Outcome": "observer",
    "Params": "types.base",
    "Principal": "principal",
    "Prompt": "types.prompts",
    "PromptMessage": "types.prompts",
    "ProtocolError": "errors",
    "RateLimit": "handlers.rate_limit",
    "ReadResourceResult": "types.resources",
    "Refusal": "transports.authentication",
    "RemoteError": "errors",
    "RequestTimeout": "errors",
    "Resource": "types.resources",
    "ResourceLink": "types.content",
    "ResourceNotFound": "errors",
    "ResultMismatch": "errors",
    "ResourceTemplate": "types.resources",
    "Result": "types.base",
    "ResultLimit": "handlers.result_limit",
    "Root": "types.sampling",
    "SamplingMessage": "types.sampling",
    "RouteRequest": "registry.routes",
    "RouteResponse": "registry.routes",
    "Server": "server",
    "SessionLost": "errors",
    "SyncContext": "context.sync",
    "TextContent": "types.content",
    "TextResourceContents": "types.content",
    "Tool": "types.tools",
    "ToolAnnotations": "types.tools",
    "ToolError": "errors",
    "View": "extensions.ui.views.view",
    "ViewResult": "extensions.ui.results",
    "add_skills": "sources.skill_files",
    "audio": "registry.content",
    "choices": "context.forms",
    "elicit_form": "context.questions",
    "elicit_url": "context.questions",
    "embedded": "registry.content",
    "image": "registry.content",
    "link": "registry.content",
    "list_roots": "context.questions",
    "sample": "context.questions",
    "text": "registry.content",
    "tool": "sources.marks",
    "view_result": "extensions.ui.results",
}

if not TYPE_CHECKING:
    # Hidden from type checkers: to them a name that is not listed above is a mistake, not Any.
    def __getattr__(name):
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _warn_of_namesake() -> None:
    """Say so if the other distribution called mcpd, whose files go where ours are, is installed beside this one."""
    site = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        names = os.listdir(site)
    except OSError:  # in a zip file, where nothing is overwritten
        return
    if any(name.startswith("mcpd-") and name.endswith(("-info", ".egg")) for name in names):
        from warnings import warn

        from mcpd.errors import NAMESAKE

        warn(NAMESAKE, RuntimeWarning, stacklevel=3)


_warn_of_namesake()
