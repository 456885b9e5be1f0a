"""A View on stage: the state machine, the other side of its channel, a clock, and words for what tests ask of both.

Lives here: what more than one module of tests/apps/host needs. Never here: fixtures and assertions about rules.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from mcpd.apps.host.document import ViewDocument, grant
from mcpd.apps.host.host import style_variables
from mcpd.apps.host.view import View, ViewPhase
from mcpd.apps.host.view.context import ContainerDimensions, HostContext, HostCss, HostStyles
from mcpd.apps.host.view.events import Event
from mcpd.apps.host.view.policy import ViewSettings
from mcpd.protocol.types.base import Implementation
from mcpd.protocol.types.features import Tool
from mcpd.server.extensions.ui.csp_sources import UiCsp, UiPermissions

__all__ = ["APP", "CONTEXT", "DOCUMENT", "HTML", "INITIALIZE", "INITIALIZED", "SETTINGS", "TOOLS", "Stage", "tool"]

HTML = "<!DOCTYPE html><title>Weather</title><p>é"
APP = {"name": "weather-view", "version": "1.0"}
INITIALIZE = "ui/initialize"
INITIALIZED = "ui/notifications/initialized"

SETTINGS = ViewSettings(host_info=Implementation(name="stage", version="1"))

DOCUMENT = ViewDocument(
    uri="ui://weather/view",
    html=HTML,
    digest="0" * 64,
    csp=UiCsp(connect_domains=["https://api.example.com"]),
    permissions=UiPermissions(camera={}, clipboard_write={}),
)

CONTEXT = HostContext(
    theme="dark",
    styles=HostStyles(
        variables=style_variables(),
        css=HostCss(fonts="@font-face { font-family: X; src: url('https://fonts.example.com/x.woff2') }"),
    ),
    display_mode="inline",
    available_display_modes=["inline", "fullscreen", "pip"],
    container_dimensions=ContainerDimensions(width=400, max_height=600),
    locale="de-DE",
)


def tool(name: str, visibility: Any = None, **members: Any) -> Tool:
    """A tool as listed, with this visibility."""
    meta = None if visibility is None else {"ui": {"visibility": visibility}}
    return Tool(name=name, input_schema={"type": "object"}, meta=meta, **members)


TOOLS = [
    tool("forecast"),
    tool("refresh", ["app"]),
    tool("delete_all", ["model"]),
    tool("both", ["model", "app"]),
]

E = TypeVar("E", bound=Event)


class Stage:
    """A View, started, with its messages as Python objects. `said` and `told` hold all it has said and been told."""

    def __init__(
        self,
        settings: ViewSettings = SETTINGS,
        *,
        context: HostContext = CONTEXT,
        document: ViewDocument = DOCUMENT,
        started: bool = True,
        **more: Any,
    ) -> None:
        profile = more.pop("profile", "strict")
        granted = grant(document.csp, document.permissions, profile, allowed=more.pop("allowed", ()))
        more.setdefault("tools", TOOLS)
        self.view = View(document, granted, settings, context=context, **more)
        self.now = 1000.0
        self.told: list[dict[str, Any]] = []
        self.happened: list[Event] = []
        self._next_id = 0
        if started:
            self.view.start(self.now)

    @property
    def state(self) -> ViewPhase:
        return self.view.state

    # ------------------------------------------------------------------ what the View says

    def says(self, message: Any) -> list[dict[str, Any]]:
        """The View sends a message (an object, or raw bytes or text): what it is told in return."""
        data = message if isinstance(message, (bytes, str)) else json.dumps(message)
        self.view.receive(data, self.now)
        return self.drain()

    def notifies(self, method: str, params: Any = None) -> list[dict[str, Any]]:
        """The View sends a notification."""
        message = {"jsonrpc": "2.0", "method": method}
        return self.says(message if params is None else {**message, "params": params})

    def requests(self, method: str, params: Any = None, request_id: Any = None) -> Any:
        """The View sends a request: the answer to it, or None if there is none yet."""
        if request_id is None:
            request_id, self._next_id = self._next_id, self._next_id + 1
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        told = self.says(message if params is None else {**message, "params": params})
        return next((answer for answer in told if "method" not in answer and answer.get("id") == request_id), None)

    def answers(self, request: dict[str, Any], result: Any = None, error: Any = None) -> list[dict[str, Any]]:
        """The View answers a request of the host."""
        body = {"error": error} if error is not None else {"result": {} if result is None else result}
        return self.says({"jsonrpc": "2.0", "id": request["id"], **body})

    # ------------------------------------------------------------------ the usual beginning

    def proxy_ready(self) -> list[dict[str, Any]]:
        return self.notifies("ui/notifications/sandbox-proxy-ready", {})

    def initialize(self, **capabilities: Any) -> Any:
        """The View sends `ui/initialize`: the result, or the whole answer if it is an error."""
        answer = self.requests(
            INITIALIZE, {"appInfo": APP, "appCapabilities": capabilities, "protocolVersion": "2026-01-26"}
        )
        return answer.get("result", answer)

    def initialized(self) -> list[dict[str, Any]]:
        return self.notifies(INITIALIZED)

    def to_html(self) -> Stage:
        if self.state is ViewPhase.PROXY:
            self.proxy_ready()
        assert self.state is ViewPhase.HTML
        return self

    def to_init(self, **capabilities: Any) -> Stage:
        self.to_html().initialize(**capabilities)
        assert self.state is ViewPhase.INIT
        return self

    def to_live(self, **capabilities: Any) -> Stage:
        self.to_init(**capabilities).initialized()
        assert self.state is ViewPhase.LIVE
        return self

    # ------------------------------------------------------------------ what the host does

    def drain(self) -> list[dict[str, Any]]:
        """What the View is told since the last time; events go to `happened`."""
        self.happened += self.view.events()
        told = [json.loads(message) for message in self.view.data_to_send()]
        self.told += told
        return told

    def passes(self, seconds: float) -> list[dict[str, Any]]:
        """Time goes by."""
        self.now += seconds
        self.view.tick(self.now)
        return self.drain()

    # ------------------------------------------------------------------ what came of it

    def take(self, kind: type[E]) -> list[E]:
        """The events of one kind so far, each given once."""
        self.drain()
        found = [event for event in self.happened if isinstance(event, kind)]
        self.happened = [event for event in self.happened if not isinstance(event, kind)]
        return found

    def only(self, kind: type[E]) -> E:
        """The one event of this kind."""
        found = self.take(kind)
        assert len(found) == 1, f"{len(found)} events of {kind.__name__}; all: {self.happened}"
        return found[0]

    def methods(self) -> list[str]:
        """The methods of all the View has been told so far, answers left out."""
        self.drain()
        return [message["method"] for message in self.told if "method" in message]
