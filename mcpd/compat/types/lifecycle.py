"""Identities, capabilities, the handshake and ping."""

from typing import Any, Literal

from mcpd.compat.types.base import BareNotification, BareRequest, BaseRequest, Model, Named, RequestParams, Result
from mcpd.compat.types.content import Icon

__all__ = [
    "ClientCapabilities",
    "ClientTasksCapability",
    "ClientTasksRequestsCapability",
    "CompletionsCapability",
    "ElicitationCapability",
    "EmptyResult",
    "FormElicitationCapability",
    "Implementation",
    "InitializeRequest",
    "InitializeRequestParams",
    "InitializeResult",
    "InitializedNotification",
    "LoggingCapability",
    "PingRequest",
    "PromptsCapability",
    "ResourcesCapability",
    "RootsCapability",
    "SamplingCapability",
    "SamplingContextCapability",
    "SamplingToolsCapability",
    "ServerCapabilities",
    "ServerTasksCapability",
    "ServerTasksRequestsCapability",
    "TasksCallCapability",
    "TasksCancelCapability",
    "TasksCreateElicitationCapability",
    "TasksCreateMessageCapability",
    "TasksElicitationCapability",
    "TasksListCapability",
    "TasksSamplingCapability",
    "TasksToolsCapability",
    "ToolsCapability",
    "UrlElicitationCapability",
]


class EmptyResult(Result):
    """An acknowledgement."""


class Implementation(Named):
    """Who a client or server is."""

    version: str
    description: str | None = None
    websiteUrl: str | None = None
    icons: list[Icon] | None = None


class RootsCapability(Model):
    """`roots` of a client."""

    listChanged: bool | None = None


class SamplingContextCapability(Model):
    """`sampling.context` of a client."""


class SamplingToolsCapability(Model):
    """`sampling.tools` of a client."""


class SamplingCapability(Model):
    """`sampling` of a client."""

    context: SamplingContextCapability | None = None
    tools: SamplingToolsCapability | None = None


class FormElicitationCapability(Model):
    """`elicitation.form` of a client."""


class UrlElicitationCapability(Model):
    """`elicitation.url` of a client."""


class ElicitationCapability(Model):
    """`elicitation` of a client."""

    form: FormElicitationCapability | None = None
    url: UrlElicitationCapability | None = None


class TasksListCapability(Model):
    """`tasks.list`."""


class TasksCancelCapability(Model):
    """`tasks.cancel`."""


class TasksCreateMessageCapability(Model):
    """`tasks.requests.sampling.createMessage` of a client."""


class TasksSamplingCapability(Model):
    """`tasks.requests.sampling` of a client."""

    createMessage: TasksCreateMessageCapability | None = None


class TasksCreateElicitationCapability(Model):
    """`tasks.requests.elicitation.create` of a client."""


class TasksElicitationCapability(Model):
    """`tasks.requests.elicitation` of a client."""

    create: TasksCreateElicitationCapability | None = None


class ClientTasksRequestsCapability(Model):
    """`tasks.requests` of a client."""

    sampling: TasksSamplingCapability | None = None
    elicitation: TasksElicitationCapability | None = None


class ClientTasksCapability(Model):
    """`tasks` of a client."""

    list: TasksListCapability | None = None
    cancel: TasksCancelCapability | None = None
    requests: ClientTasksRequestsCapability | None = None


class ClientCapabilities(Model):
    """What a client offers."""

    experimental: dict[str, dict[str, Any]] | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    roots: RootsCapability | None = None
    tasks: ClientTasksCapability | None = None


class PromptsCapability(Model):
    """`prompts` of a server."""

    listChanged: bool | None = None


class ResourcesCapability(Model):
    """`resources` of a server."""

    subscribe: bool | None = None
    listChanged: bool | None = None


class ToolsCapability(Model):
    """`tools` of a server."""

    listChanged: bool | None = None


class LoggingCapability(Model):
    """`logging` of a server."""


class CompletionsCapability(Model):
    """`completions` of a server."""


class TasksCallCapability(Model):
    """`tasks.requests.tools.call` of a server."""


class TasksToolsCapability(Model):
    """`tasks.requests.tools` of a server."""

    call: TasksCallCapability | None = None


class ServerTasksRequestsCapability(Model):
    """`tasks.requests` of a server."""

    tools: TasksToolsCapability | None = None


class ServerTasksCapability(Model):
    """`tasks` of a server."""

    list: TasksListCapability | None = None
    cancel: TasksCancelCapability | None = None
    requests: ServerTasksRequestsCapability | None = None


class ServerCapabilities(Model):
    """What a server offers."""

    experimental: dict[str, dict[str, Any]] | None = None
    logging: LoggingCapability | None = None
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None
    completions: CompletionsCapability | None = None
    tasks: ServerTasksCapability | None = None


class InitializeRequestParams(RequestParams):
    """What a client says of itself."""

    protocolVersion: str | int
    capabilities: ClientCapabilities
    clientInfo: Implementation


class InitializeRequest(BaseRequest):
    """The handshake."""

    method: Literal["initialize"] = "initialize"
    params: InitializeRequestParams


class InitializeResult(Result):
    """What a server says of itself."""

    protocolVersion: str | int
    capabilities: ServerCapabilities
    serverInfo: Implementation
    instructions: str | None = None


class InitializedNotification(BareNotification):
    """The client is ready."""

    method: Literal["notifications/initialized"] = "notifications/initialized"


class PingRequest(BareRequest):
    """Are you there?"""

    method: Literal["ping"] = "ping"
