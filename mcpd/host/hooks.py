"""What the program that embeds a host decides, and what it hears of.

A hook that is missing means the safe answer: what has no hook is not offered to Views at all, except for
messages and context for the model, which only wait in the conversation until the program takes them.
A hook says no by giving False, or by raising `refusals.Denied` with a reason for the View's author.

Spec: MCP Apps 2026-01-26, "Requests (View -> Host)"; rules APP-H-17 to -22, -26 of docs/rules.toml.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

from msgspec import Raw, Struct

from mcpd.host.documents.document import ViewDocument
from mcpd.host.shown import ShownView
from mcpd.host.view.capabilities import Empty, HostCapabilities, SamplingOffer
from mcpd.host.view.context import DisplayMode
from mcpd.host.view.events import DownloadItem, Event, ModelContextUpdate
from mcpd.host.view.policy import DEFAULT_CAPABILITIES
from mcpd.protocol.types.base import ListChanged, ServerCapabilities
from mcpd.protocol.types.content import ContentBlock
from mcpd.protocol.types.interaction import CreateMessageResult
from mcpd.protocol.types.tools import Tool

T = TypeVar("T")
_Maybe: TypeAlias = T | Awaitable[T]


class Hooks(Struct, frozen=True, kw_only=True):
    """Plain functions or coroutine functions; each is given the View that it is about.

    open_link      open this http(s) address outside the View; without it Views cannot open links
    download       save these files for the user, who should be asked; without it Views cannot offer any
    sample         ask the model: the params of `sampling/createMessage` as JSON, its result back
    display_mode   show the View in this mode: give the mode that came of it; without it the mode stays
    message        whether this text of the View may stand in the conversation as the user's; default yes
    model_context  whether the model may be told this; default yes
    call_tool      whether the View may make this call (the tool is one for Views already); default yes
    review         whether this document may be shown; asked once for each content and metadata; default yes
    event          hears of all that happens: sizes, logs, findings, life and end
    """

    open_link: Callable[[ShownView, str], _Maybe[bool | None]] | None = None
    download: Callable[[ShownView, Sequence[DownloadItem]], _Maybe[bool | None]] | None = None
    sample: Callable[[ShownView, Raw], _Maybe[CreateMessageResult | Mapping[str, Any] | Raw]] | None = None
    sample_tools: bool = False
    display_mode: Callable[[ShownView, DisplayMode], _Maybe[DisplayMode | None]] | None = None
    message: Callable[[ShownView, Sequence[ContentBlock]], _Maybe[bool | None]] | None = None
    model_context: Callable[[ShownView, ModelContextUpdate], _Maybe[bool | None]] | None = None
    call_tool: Callable[[ShownView, Tool, Raw], _Maybe[bool | None]] | None = None
    review: Callable[[ViewDocument], _Maybe[bool | None]] | None = None
    event: Callable[[ShownView, Event], object] | None = None


async def settle(value: _Maybe[T]) -> T:
    """What a hook gave, plain or awaited."""
    return await value if isawaitable(value) else value


def offered(hooks: Hooks, server: ServerCapabilities) -> HostCapabilities:
    """What a host with these hooks offers the Views of this server."""
    tools, resources = server.tools, server.resources
    return HostCapabilities(
        open_links=Empty() if hooks.open_link is not None else None,
        download_file=Empty() if hooks.download is not None else None,
        server_tools=ListChanged(list_changed=tools.list_changed) if tools is not None else None,
        server_resources=ListChanged(list_changed=resources.list_changed) if resources is not None else None,
        logging=Empty(),
        update_model_context=DEFAULT_CAPABILITIES.update_model_context,
        message=DEFAULT_CAPABILITIES.message,
        sampling=SamplingOffer(tools=Empty() if hooks.sample_tools else None) if hooks.sample is not None else None,
    )
