"""What nodes compare of their lists, to keep silent about a change that their clients know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mcpd import Server
from mcpd.server.http_backend import ListDigests


def garden(*names: str, **options: Any) -> Server:
    server = Server("garden", **options)
    for name in names:

        async def tool(bed: str) -> str:
            """Water a bed."""
            return bed

        server.add_tool(tool, name=name)
    return server


def digest(server: Server) -> bytes:
    return ListDigests(lambda: server.catalog)("tools")


def test_equal_lists_have_the_same_in_every_process() -> None:
    """SCALE-16."""
    assert digest(garden("a", "b")) == digest(garden("a", "b"))
    assert len({digest(garden(*names)) for names in (["a"], ["b"], ["b", "a"], ["a", "b"], [])}) == 5


def test_it_is_made_anew_after_a_change_only() -> None:
    server = garden("a")
    digests = ListDigests(lambda: server.catalog)
    one = digests("tools")
    made = digests._made["tools"]
    assert digests("tools") == one
    assert digests._made["tools"] is made
    server.remove_tool("a")
    assert digests("tools") == digest(garden())
    before = digests("resources")

    @server.resource("garden://{bed}")
    async def bed(bed: str) -> str:
        return bed

    assert digests("resources") != before
    assert digests("tools") == digest(garden())


def test_what_is_listed_counts_and_not_how_it_is_done() -> None:
    one, other = garden("a"), garden()

    async def tool(bed: str) -> str:
        """Water a bed."""
        return bed * 2

    other.add_tool(tool, name="a")
    assert digest(one) == digest(other)


def test_where_more_than_entries_decides_there_is_none() -> None:
    """Nobody can know then who sees the same."""
    ruled, needing, told, said = [garden("a") for _ in range(4)]
    ruled.visibility(lambda entry, ctx: True)
    needing.catalog.guard()
    told.tools_changed()
    said.visibility_changed()
    assert {digest(server) for server in (ruled, needing, told, said)} == {b""}


def test_a_schema_that_cannot_be_made_is_a_list_too() -> None:
    def listed(active: object) -> object:
        raise RuntimeError("no schema")

    server = garden()
    server.catalog.tools._offered = {"a": SimpleNamespace(key="a", listed=listed)}
    assert digest(server) not in (b"", digest(garden()))
