"""An MCP server and client. These are the public names; all other modules are internal and may change.

Each name is imported when it is first used.
"""

from __future__ import annotations

import os

from mcpd.moved import install as install_old_names

TYPE_CHECKING = False  # as in `typing`, which is loaded while the collector is disabled (`cli.main`)

if TYPE_CHECKING:
    from mcpd.apps.host.host import (
        Host as Host,
        HostOptions as HostOptions,
    )
    from mcpd.apps.host.shown_view import Hooks as Hooks
    from mcpd.client import (
        Callbacks as Callbacks,
        Client as Client,
        ClientLimits as ClientLimits,
    )
    from mcpd.client.auth.settings import (
        ClientCredentials as ClientCredentials,
        EnterpriseManaged as EnterpriseManaged,
        OAuth as OAuth,
        PrivateKeyJwt as PrivateKeyJwt,
        WorkloadIdentity as WorkloadIdentity,
    )
    from mcpd.client.group import ClientGroup as ClientGroup
    from mcpd.client.http.options import (
        Challenge as Challenge,
        HttpOptions as HttpOptions,
    )
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
        TaskCancelled as TaskCancelled,
        ToolError as ToolError,
    )
    from mcpd.protocol.observer import (
        ObservedCall as ObservedCall,
        ObservedFrame as ObservedFrame,
        Observer as Observer,
        Outcome as Outcome,
    )
    from mcpd.protocol.principal import (
        ANONYMOUS as ANONYMOUS,
        Principal as Principal,
    )
    from mcpd.protocol.types.base import (
        Icon as Icon,
        Implementation as Implementation,
        LogMessageParams as LogMessageParams,
        Params as Params,
        Result as Result,
    )
    from mcpd.protocol.types.features import (
        AudioContent as AudioContent,
        BlobResourceContents as BlobResourceContents,
        CallToolResult as CallToolResult,
        ContentBlock as ContentBlock,
        EmbeddedResource as EmbeddedResource,
        GetPromptResult as GetPromptResult,
        ImageContent as ImageContent,
        Prompt as Prompt,
        PromptMessage as PromptMessage,
        ReadResourceResult as ReadResourceResult,
        Resource as Resource,
        ResourceLink as ResourceLink,
        ResourceTemplate as ResourceTemplate,
        TextContent as TextContent,
        TextResourceContents as TextResourceContents,
        Tool as Tool,
        ToolAnnotations as ToolAnnotations,
    )
    from mcpd.protocol.types.interaction import (
        CreateMessageParams as CreateMessageParams,
        CreateMessageResult as CreateMessageResult,
        ElicitFormParams as ElicitFormParams,
        ElicitResult as ElicitResult,
        ElicitUrlParams as ElicitUrlParams,
        Root as Root,
        SamplingMessage as SamplingMessage,
    )
    from mcpd.server import Server as Server
    from mcpd.server.context.context import (
        Context as Context,
        SyncContext as SyncContext,
    )
    from mcpd.server.context.forms import choices as choices
    from mcpd.server.context.questions import (
        Answer as Answer,
        elicit_form as elicit_form,
        elicit_url as elicit_url,
        list_roots as list_roots,
        sample as sample,
    )
    from mcpd.server.extensions.catalogue import Catalogue as Catalogue
    from mcpd.server.extensions.events.declare import (
        Batch as Batch,
        EventContext as EventContext,
        Found as Found,
    )
    from mcpd.server.extensions.events.settings import Events as Events
    from mcpd.server.extensions.files.file import (
        Accept as Accept,
        File as File,
        SyncFile as SyncFile,
    )
    from mcpd.server.extensions.files.settings import FileSettings as FileSettings
    from mcpd.server.extensions.tasks.authors import TaskInfo as TaskInfo
    from mcpd.server.extensions.tasks.settings import TaskSettings as TaskSettings
    from mcpd.server.extensions.ui.results import (
        ViewResult as ViewResult,
        view_result as view_result,
    )
    from mcpd.server.extensions.ui.view import View as View
    from mcpd.server.functions.dependencies import Depends as Depends
    from mcpd.server.handlers.limits import (
        RateLimit as RateLimit,
        ResultLimit as ResultLimit,
    )
    from mcpd.server.handlers.middleware import (
        CallNext as CallNext,
        MiddlewareRequest as MiddlewareRequest,
    )
    from mcpd.server.registry.caching import CacheHint as CacheHint
    from mcpd.server.registry.content import (
        audio as audio,
        embedded as embedded,
        image as image,
        link as link,
        text as text,
    )
    from mcpd.server.registry.rules import CatalogEntry as CatalogEntry
    from mcpd.server.settings import Attach as Attach
    from mcpd.sources.functions import tool as tool
    from mcpd.sources.skills import add_skills as add_skills
    from mcpd.transports.authentication import (
        Authenticator as Authenticator,
        Refusal as Refusal,
    )
    from mcpd.transports.routes import (
        RouteRequest as RouteRequest,
        RouteResponse as RouteResponse,
    )

__version__ = "0.1.0"

_NAMES = {
    "mcpd.apps.host.host": ("Host", "HostOptions"),
    "mcpd.apps.host.shown_view": ("Hooks",),
    "mcpd.client": ("Callbacks", "Client", "ClientLimits"),
    "mcpd.client.auth.settings": (
        "ClientCredentials", "EnterpriseManaged", "OAuth", "PrivateKeyJwt", "WorkloadIdentity",
    ),
    "mcpd.client.group": ("ClientGroup",),
    "mcpd.client.http.options": ("Challenge", "HttpOptions"),
    "mcpd.errors": (
        "AuthorizationFailed", "AuthorizationRequired", "CannotConnect", "ConnectionLost", "HttpError",
        "McpdError", "ProtocolError", "RemoteError", "RequestTimeout", "ResourceNotFound", "ResultMismatch",
        "SessionLost", "TaskCancelled", "ToolError",
    ),
    "mcpd.protocol.observer": ("ObservedCall", "ObservedFrame", "Observer", "Outcome"),
    "mcpd.protocol.principal": ("ANONYMOUS", "Principal"),
    "mcpd.protocol.types.base": ("Icon", "Implementation", "LogMessageParams", "Params", "Result"),
    "mcpd.protocol.types.features": (
        "AudioContent", "BlobResourceContents", "CallToolResult", "ContentBlock", "EmbeddedResource",
        "GetPromptResult", "ImageContent", "Prompt", "PromptMessage", "ReadResourceResult", "Resource",
        "ResourceLink", "ResourceTemplate", "TextContent", "TextResourceContents", "Tool", "ToolAnnotations",
    ),
    "mcpd.protocol.types.interaction": (
        "CreateMessageParams", "CreateMessageResult", "ElicitFormParams", "ElicitResult", "ElicitUrlParams",
        "Root", "SamplingMessage",
    ),
    "mcpd.server": ("Server",),
    "mcpd.server.context.context": ("Context", "SyncContext"),
    "mcpd.server.context.forms": ("choices",),
    "mcpd.server.context.questions": ("Answer", "elicit_form", "elicit_url", "list_roots", "sample"),
    "mcpd.server.extensions.catalogue": ("Catalogue",),
    "mcpd.server.extensions.events.declare": ("Batch", "EventContext", "Found"),
    "mcpd.server.extensions.events.settings": ("Events",),
    "mcpd.server.extensions.files.file": ("Accept", "File", "SyncFile"),
    "mcpd.server.extensions.files.settings": ("FileSettings",),
    "mcpd.server.extensions.tasks.authors": ("TaskInfo",),
    "mcpd.server.extensions.tasks.settings": ("TaskSettings",),
    "mcpd.server.extensions.ui.results": ("ViewResult", "view_result"),
    "mcpd.server.extensions.ui.view": ("View",),
    "mcpd.server.functions.dependencies": ("Depends",),
    "mcpd.server.handlers.limits": ("RateLimit", "ResultLimit"),
    "mcpd.server.handlers.middleware": ("CallNext", "MiddlewareRequest"),
    "mcpd.server.registry.caching": ("CacheHint",),
    "mcpd.server.registry.content": ("audio", "embedded", "image", "link", "text"),
    "mcpd.server.registry.rules": ("CatalogEntry",),
    "mcpd.server.settings": ("Attach",),
    "mcpd.sources.functions": ("tool",),
    "mcpd.sources.skills": ("add_skills",),
    "mcpd.transports.authentication": ("Authenticator", "Refusal"),
    "mcpd.transports.routes": ("RouteRequest", "RouteResponse"),
}  # fmt: skip
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted((*_HOMES, "__version__"))  # noqa: PLE0605 (the linter reads lists only)

if not TYPE_CHECKING:
    # Hidden from type checkers, which must report names that are not listed above instead of treating them as Any.
    def __getattr__(name):
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(home), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _warn_of_namesake() -> None:
    """Warn if the other distribution named mcpd is installed too, because it overwrites files of this one."""
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
install_old_names()
