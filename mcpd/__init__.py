"""mcpd: an MCP daemon and library. The public names; all other modules are internal and may change.

Loaded by attribute access, so that `import mcpd` costs nothing that is not used.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as type checkers know it; `typing` is loaded when the collector rests (`cli.main`)

if TYPE_CHECKING:
    from .client import Callbacks as Callbacks
    from .client import Client as Client
    from .client import ClientLimits as ClientLimits
    from .client.auth.settings import ClientCredentials as ClientCredentials
    from .client.auth.settings import EnterpriseManaged as EnterpriseManaged
    from .client.auth.settings import OAuth as OAuth
    from .client.auth.settings import PrivateKeyJwt as PrivateKeyJwt
    from .client.auth.settings import WorkloadIdentity as WorkloadIdentity
    from .client.group import ClientGroup as ClientGroup
    from .context.context import Context as Context
    from .context.forms import choices as choices
    from .context.questions import Answer as Answer
    from .context.questions import elicit_form as elicit_form
    from .context.questions import elicit_url as elicit_url
    from .context.questions import list_roots as list_roots
    from .context.questions import sample as sample
    from .context.sync import SyncContext as SyncContext
    from .errors import AuthorizationFailed as AuthorizationFailed
    from .errors import AuthorizationRequired as AuthorizationRequired
    from .errors import CannotConnect as CannotConnect
    from .errors import ConnectionLost as ConnectionLost
    from .errors import HttpError as HttpError
    from .errors import McpdError as McpdError
    from .errors import ProtocolError as ProtocolError
    from .errors import RemoteError as RemoteError
    from .errors import RequestTimeout as RequestTimeout
    from .errors import ResourceNotFound as ResourceNotFound
    from .errors import ResultMismatch as ResultMismatch
    from .errors import SessionLost as SessionLost
    from .errors import ToolError as ToolError
    from .extensions.ui.results import ViewResult as ViewResult
    from .extensions.ui.results import view_result as view_result
    from .extensions.ui.views.view import View as View
    from .handlers.middleware import CallNext as CallNext
    from .handlers.middleware import MiddlewareRequest as MiddlewareRequest
    from .handlers.rate_limit import RateLimit as RateLimit
    from .handlers.result_limit import ResultLimit as ResultLimit
    from .host.hooks import Hooks as Hooks
    from .host.host import Host as Host
    from .host.options import HostOptions as HostOptions
    from .observer import ObservedCall as ObservedCall
    from .observer import ObservedFrame as ObservedFrame
    from .observer import Observer as Observer
    from .observer import Outcome as Outcome
    from .principal import ANONYMOUS as ANONYMOUS
    from .principal import Principal as Principal
    from .registry.cache import CacheHint as CacheHint
    from .registry.content import audio as audio
    from .registry.content import embedded as embedded
    from .registry.content import image as image
    from .registry.content import link as link
    from .registry.content import text as text
    from .registry.depends import Depends as Depends
    from .registry.routes import RouteRequest as RouteRequest
    from .registry.routes import RouteResponse as RouteResponse
    from .registry.rules import CatalogEntry as CatalogEntry
    from .server import Server as Server
    from .sources.marks import tool as tool
    from .sources.skill_files import add_skills as add_skills
    from .transports.authentication import Authenticator as Authenticator
    from .transports.authentication import Refusal as Refusal
    from .transports.http_client.options import Challenge as Challenge
    from .transports.http_client.options import HttpOptions as HttpOptions
    from .types.base import Icon as Icon
    from .types.base import Params as Params
    from .types.base import Result as Result
    from .types.content import AudioContent as AudioContent
    from .types.content import BlobResourceContents as BlobResourceContents
    from .types.content import ContentBlock as ContentBlock
    from .types.content import EmbeddedResource as EmbeddedResource
    from .types.content import ImageContent as ImageContent
    from .types.content import ResourceLink as ResourceLink
    from .types.content import TextContent as TextContent
    from .types.content import TextResourceContents as TextResourceContents
    from .types.elicitation import ElicitFormParams as ElicitFormParams
    from .types.elicitation import ElicitResult as ElicitResult
    from .types.elicitation import ElicitUrlParams as ElicitUrlParams
    from .types.lifecycle import Implementation as Implementation
    from .types.notifications import LogMessageParams as LogMessageParams
    from .types.prompts import GetPromptResult as GetPromptResult
    from .types.prompts import Prompt as Prompt
    from .types.prompts import PromptMessage as PromptMessage
    from .types.resources import ReadResourceResult as ReadResourceResult
    from .types.resources import Resource as Resource
    from .types.resources import ResourceTemplate as ResourceTemplate
    from .types.sampling import CreateMessageParams as CreateMessageParams
    from .types.sampling import CreateMessageResult as CreateMessageResult
    from .types.sampling import Root as Root
    from .types.sampling import SamplingMessage as SamplingMessage
    from .types.tools import CallToolResult as CallToolResult
    from .types.tools import Tool as Tool
    from .types.tools import ToolAnnotations as ToolAnnotations

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

        from .errors import NAMESAKE

        warn(NAMESAKE, RuntimeWarning, stacklevel=3)


_warn_of_namesake()
