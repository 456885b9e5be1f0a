"""`DocumentCache`: what is read, when it is read again, and what the program is asked about it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.host_server import HTML, HandServer

from mcpd import Callbacks, Hooks, Host
from mcpd.apps.host.document import ViewDocument
from mcpd.apps.host.view.policy import Denied
from mcpd.errors import ConfigurationError

OLD, NEW = HTML + "old", HTML + "new"


async def test_a_change_that_is_announced_while_a_document_is_read() -> None:
    """APP-H-26: what was read before the change is not taken for fresh."""
    server, told = HandServer(resources__read=lambda request: None), asyncio.Event()
    async with Host(server.near, callbacks=Callbacks(resource_updated=lambda uri: told.set())) as host:
        preparing = asyncio.ensure_future(host.prepare_view(host.begin_call("t")))
        request = await server.hears("resources/read")
        server.notify("notifications/resources/updated", {"uri": "ui://w/v"})
        await told.wait()
        server.view(request, OLD)
        first = await preparing
        server.handlers["resources/read"] = lambda request: server.view(request, NEW)
        second = await host.prepare_view(host.begin_call("t"))
        third = await host.prepare_view(host.begin_call("t"))
        assert [view.document.html for view in (first, second, third)] == [OLD, NEW, NEW]
        assert len(server.of("resources/read")) == 2
        for view in (first, second, third):
            view.lost("the test is over")


async def test_a_change_that_is_announced_while_the_metadata_is_listed() -> None:
    """APP-H-07: nor is the listing."""
    server, told = HandServer(resources__list=lambda request: None), asyncio.Event()

    def listing(border: bool) -> dict[str, Any]:
        meta = {"ui": {"prefersBorder": border}}
        return {"resources": [{"uri": "ui://w/v", "name": "v", "_meta": meta}]}

    async with Host(server.near, callbacks=Callbacks(list_changed=lambda kind: told.set())) as host:
        preparing = asyncio.ensure_future(host.prepare_view(host.begin_call("t")))
        request = await server.hears("resources/list")
        server.notify("notifications/resources/list_changed")
        await told.wait()
        server.result(request, listing(True))
        first = await preparing
        server.handlers["resources/list"] = lambda request: server.result(request, listing(False))
        second = await host.prepare_view(host.begin_call("t"))
        assert [view.document.prefers_border for view in (first, second)] == [True, False]
        for view in (first, second):
            view.lost("the test is over")


@pytest.mark.parametrize("answer", [False, Denied("too colourful")])
async def test_what_was_turned_down_is_not_asked_about_again(answer: Any) -> None:
    """APP-H-26: asked once for each content and metadata, also after a no; other content is another question."""
    server, asked = HandServer(), []

    def review(document: ViewDocument) -> Any:
        asked.append(document.html)
        if document.html == NEW:
            return None
        if isinstance(answer, Denied):
            raise answer
        return answer

    server.html = OLD
    async with Host(server.near, hooks=Hooks(review=review)) as host:
        for _ in range(3):
            with pytest.raises(ConfigurationError, match="refused by the review"):
                await host.prepare_view(host.begin_call("t"))
            host._documents.expire()
        assert asked == [OLD]
        assert len(server.of("resources/read")) == 3
        server.html = NEW
        (await host.prepare_view(host.begin_call("t"))).lost("the test is over")
        assert asked == [OLD, NEW]
