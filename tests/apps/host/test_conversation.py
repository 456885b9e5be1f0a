"""`Conversation`: what Views said, kept apart."""

from __future__ import annotations

from support.host_program import make_server

from mcpd import Host
from mcpd.apps.host.shown_view import Conversation
from mcpd.apps.host.view.events import ModelContextUpdate


async def test_hosts_that_share_a_conversation_keep_their_views_apart() -> None:
    """APP-H-19: each update replaces the last one of the same View, not another host's."""
    conversation = Conversation()
    async with (
        Host(make_server(), conversation=conversation) as one,
        Host(make_server(), conversation=conversation) as two,
    ):
        views = []
        for number, host in enumerate((one, two)):
            view = await host.open_view(await host.call_tool("forecast"), lambda message: None)
            conversation.set_context(view.id, view.call.name, ModelContextUpdate(1, [], {"from": number}))
            views.append(view)
        assert views[0].id != views[1].id
        taken = conversation.take_context()
        assert [(each.view, each.structured_content) for each in taken] == [
            (view.id, {"from": number}) for number, view in enumerate(views)
        ]
        for view in views:
            view.lost("the test is over")
