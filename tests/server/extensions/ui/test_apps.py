"""The registry of Views on the wire: what is listed, linked and read, and what happens when one changes."""

from __future__ import annotations

from typing import Any

import pytest
from support.ui_stage import BOTH_ERAS, CHART, HTML, NO_APPS, WITH_APPS, make_server, tool_of, uris
from support.wires import MODERN, Wire, memory_wire

from mcpd import Context, Server
from mcpd.errors import RegistrationError, ResourceNotFound
from mcpd.protocol.types.features import BlobResourceContents, ReadResourceResult, TextResourceContents
from mcpd.server.extensions.options import AppOptions
from mcpd.server.extensions.ui.constants import MIME_TYPE, UI
from mcpd.server.extensions.ui.csp_sources import UiCsp, UiPermissions

OTHER = HTML + "<p>changed"


async def link_of(wire: Wire, tool: str = "chart") -> str:
    return str(tool_of(await wire.result("tools/list"), tool)["_meta"]["ui"]["resourceUri"])


async def read(wire: Wire, uri: str) -> Any:
    (content,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
    assert content["uri"] == uri
    return content


# ------------------------------------------------------------------------- listing and content


@BOTH_ERAS
async def test_listing_and_content_say_the_same(version: str) -> None:
    """APP-S-01, APP-S-02, APP-S-03, APP-S-09, APP-S-10: scheme, type, text, listed, the same `_meta.ui` on both."""
    async with memory_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        (listed,) = [r for r in (await wire.result("resources/list"))["resources"] if r["uri"].startswith("ui://")]
        assert listed["mimeType"] == MIME_TYPE == "text/html;profile=mcp-app"
        assert listed["name"] == "chart"
        assert listed["size"] == len(HTML.encode())
        content = await read(wire, listed["uri"])
        assert content["text"] == HTML
        assert "blob" not in content
        assert content["_meta"] == listed["_meta"]
        assert content["_meta"] == {
            "ui": {"csp": {"connectDomains": ["https://api.example.com"]}, "prefersBorder": True}
        }


@BOTH_ERAS
async def test_a_tool_links_the_resource_that_is_listed_under_both_keys(version: str) -> None:
    """APP-S-05, APP-S-11: the very same string in tool, list and content; nested and flat."""
    async with memory_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        meta = tool_of(await wire.result("tools/list"), "chart")["_meta"]
        assert set(meta) == {"ui", "ui/resourceUri"}
        assert meta["ui/resourceUri"] == meta["ui"]["resourceUri"]
        assert meta["ui"]["resourceUri"] in uris(await wire.result("resources/list"))
        assert not {"csp", "permissions"} & set(meta["ui"])


async def test_every_member_of_the_metadata() -> None:
    """UI resource format: csp, permissions, domain, prefersBorder, and the resource's own members."""
    server = Server("full")
    uri = server.app(
        "ui://full/all",
        HTML,
        name="all",
        title="All",
        description="Everything",
        icons=[{"src": "https://example.com/x.png"}],
        meta={"example/a": 1},
        csp={
            "connectDomains": ["https://API.example.com/path", "data:"],
            "resourceDomains": ["https://*.example.com"],
            "frameDomains": ["https://frames.example.com:8443"],
            "baseUriDomains": [],
        },
        permissions=["camera", "clipboardWrite"],
        domain="a904794854a047f6.example.com",
        prefers_border=False,
    )
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        (listed,) = (await wire.result("resources/list"))["resources"]
        assert (listed["name"], listed["title"], listed["description"]) == ("all", "All", "Everything")
        assert listed["icons"] == [{"src": "https://example.com/x.png"}]
        assert (await read(wire, uri))["_meta"] == listed["_meta"]
        assert listed["_meta"] == {
            "example/a": 1,
            "ui": {
                "csp": {
                    "connectDomains": ["https://api.example.com", "data:"],
                    "resourceDomains": ["https://*.example.com"],
                    "frameDomains": ["https://frames.example.com:8443"],
                },
                "permissions": {"camera": {}, "clipboardWrite": {}},
                "domain": "a904794854a047f6.example.com",
                "prefersBorder": False,
            },
        }


async def test_an_empty_csp_is_sent_and_no_csp_is_not() -> None:
    """Hosts are stricter where the member is absent; no `_meta` at all where there is nothing to say (APP-S-08)."""
    server = Server("empty")
    server.app("none", HTML)
    server.app("empty", HTML, csp={})
    server.app("structs", HTML, csp=UiCsp(), permissions=UiPermissions(microphone={}))
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        none, empty, structs = (await wire.result("resources/list"))["resources"]
        assert "_meta" not in none
        assert empty["_meta"] == {"ui": {"csp": {}}}
        assert structs["_meta"] == {"ui": {"csp": {}, "permissions": {"microphone": {}}}}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
async def test_older_versions_get_what_apps_say_and_nothing_else(version: str) -> None:
    """They have no `_meta` of tools and resources; the extension's own example negotiates in 2024-11-05."""
    server = Server("old")

    @server.tool(ui=server.app("chart", HTML, prefers_border=True, meta={"example/a": 1}), meta={"example/b": 2})
    async def draw() -> str:
        """Draws."""
        return ""

    async with memory_wire(server, version, capabilities=WITH_APPS) as wire:
        (tool,) = (await wire.result("tools/list"))["tools"]
        assert set(tool["_meta"]) == {"ui", "ui/resourceUri"}
        assert (await read(wire, tool["_meta"]["ui/resourceUri"]))["_meta"] == {"ui": {"prefersBorder": True}}
    async with memory_wire(server, version) as wire:
        (tool,) = (await wire.result("tools/list"))["tools"]
        assert "_meta" not in tool


async def test_html_as_bytes_is_sent_as_text() -> None:
    """APP-S-03, APP-S-04: always text, UTF-8; one host decodes a blob as Latin-1, another refuses it."""
    server = Server("bytes")
    server.app("bytes", b"\xef\xbb\xbf" + HTML.encode())
    server.app("bom", "\ufeff" + HTML)
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        for uri in ("ui://bytes/bytes", "ui://bytes/bom"):
            assert (await read(wire, uri))["text"] == HTML


@BOTH_ERAS
async def test_an_unknown_view_is_not_found(version: str) -> None:
    """APP-S-14, mcp-apps-res-09: the version's own error, with the URI."""
    async with memory_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        for uri in ("ui://stage/nothing", "ui://stage/nothing?v=0123", "ui://stage/", "ui://", "UI://stage/chart"):
            error = await wire.error("resources/read", {"uri": uri})
            assert error["code"] == (-32602 if version == MODERN else -32002)
            assert error["data"] == {"uri": uri}


# --------------------------------------------------------------------------------- versioned URIs


@BOTH_ERAS
async def test_a_changed_view_has_another_uri_and_every_older_one_is_answered(version: str) -> None:
    """Hosts cache by URI. With the old hash, an invented one or none: what the View holds now."""
    server = make_server()
    async with memory_wire(server, version, capabilities=WITH_APPS) as wire:
        before = await link_of(wire)
        assert (await read(wire, before))["text"] == HTML
        server.app(CHART, OTHER, replace=True)
        after = await link_of(wire)
        assert after != before
        assert uris(await wire.result("resources/list"))[0] == after
        for uri in (after, before, CHART, f"{CHART}?v=0", f"{CHART}?v="):
            assert (await read(wire, uri))["text"] == OTHER
        server.app(CHART, HTML, csp={"connectDomains": ["https://api.example.com"]}, prefers_border=True, replace=True)
        assert await link_of(wire) == before


async def test_the_metadata_is_part_of_what_is_hashed() -> None:
    """A host keeps HTML and policy together: a policy that was loosened has to reach it, too."""
    server = make_server()
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        links = {await link_of(wire)}
        for options in (
            {},
            {"prefers_border": True},
            {"prefers_border": False},
            {"csp": {}},
            {"permissions": ["camera"]},
        ):
            server.app(CHART, HTML, replace=True, **options)  # type: ignore[arg-type]
            links.add(await link_of(wire))
    assert len(links) == 6


async def test_two_servers_give_the_same_content_the_same_uri() -> None:
    """The hash is of the content alone: processes behind one address agree."""
    links = []
    for _ in range(2):
        async with memory_wire(make_server(), "2025-11-25", capabilities=WITH_APPS) as wire:
            links.append(await link_of(wire))
    assert links[0] == links[1]


async def test_only_the_uri_of_the_content_may_be_kept() -> None:
    """2026-07-28 caching: what is under the hash of it stays; under any other URI it may be another one soon."""
    async with memory_wire(make_server(), MODERN, capabilities=WITH_APPS) as wire:
        for uri, ttl in ((await link_of(wire), 86_400_000), (CHART, 0), (f"{CHART}?v=old", 0)):
            result = await wire.result("resources/read", {"uri": uri})
            assert (result["ttlMs"], result["cacheScope"]) == (ttl, "private")


@BOTH_ERAS
async def test_a_uri_with_a_query_of_its_own(version: str) -> None:
    server = Server("query")
    uri = server.app("ui://query/chart?theme=dark", HTML)
    async with memory_wire(server, version, capabilities=WITH_APPS) as wire:
        (listed,) = uris(await wire.result("resources/list"))
        assert listed.startswith(f"{uri}&v=")
        assert (await read(wire, listed))["text"] == (await read(wire, uri))["text"] == HTML
        assert "error" in await wire.request("resources/read", {"uri": "ui://query/chart"})


async def test_clients_are_told_that_a_view_has_changed() -> None:
    """Tools link it by its new URI, so both lists are other ones; who watches the resource hears of it."""
    server = make_server()
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        link = await link_of(wire)
        await wire.result("resources/subscribe", {"uri": link})
        server.app(CHART, OTHER, replace=True)
        heard = [await wire.receive() for _ in range(3)]
        assert {message["method"] for message in heard} == {
            "notifications/resources/list_changed",
            "notifications/tools/list_changed",
            "notifications/resources/updated",
        }
        (updated,) = [message for message in heard if message["method"] == "notifications/resources/updated"]
        assert updated["params"]["uri"] == link


async def test_a_view_that_no_tool_links_changes_no_list_of_tools() -> None:
    server = make_server()
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        server.app("lonely", HTML)
        assert (await wire.receive())["method"] == "notifications/resources/list_changed"
        await wire.quiet()


async def test_a_view_can_be_registered_after_its_tool_and_taken_away() -> None:
    server = Server("late")

    @server.tool(ui="chart")
    async def draw() -> str:
        """Draws."""
        return ""

    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        assert "_meta" not in tool_of(await wire.result("tools/list"), "draw")
        server.app("chart", HTML)
        assert (await link_of(wire, "draw")).startswith("ui://late/chart?v=")
        assert server.remove_resource("ui://late/chart")
        assert "_meta" not in tool_of(await wire.result("tools/list"), "draw")
        assert "error" in await wire.request("resources/read", {"uri": "ui://late/chart"})


@pytest.mark.parametrize("uri", ["ui://late/now", "ui://late/{name}"])
async def test_a_view_of_a_function_can_come_later_too(uri: str) -> None:
    server = Server("late")
    server.add_tool(draw, ui="ui://late/now", visibility=["model"])
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        assert tool_of(await wire.result("tools/list"), "draw")["_meta"] == {"ui": {"visibility": ["model"]}}
        server.resource(uri)(draw if "{" not in uri else lambda name: HTML)
        assert await link_of(wire, "draw") == "ui://late/now"
        server.remove_resource(uri)
        assert "ui/resourceUri" not in tool_of(await wire.result("tools/list"), "draw")["_meta"]


async def test_no_tool_links_a_view_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    """APP-S-05, APP-S-18: an app that could not be loaded leaves its tool as text; the log says so, once."""
    server = Server("gone")
    server.add_apps("/no/such/folder")
    server.add_tool(draw, ui="chart")
    for _ in range(2):
        async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
            assert "_meta" not in tool_of(await wire.result("tools/list"), "draw")
            assert await wire.text("draw") == "drawn"
        server.tools_changed()
    assert caplog.text.count("tool draw: its View ui://gone/chart is not registered: no app is registered") == 1


async def test_unchanged_lists_are_the_same_bytes() -> None:
    """The page of a list is made once for each set of active extensions."""
    server = make_server()
    catalog = server.catalog
    for active in (frozenset(), frozenset((UI,))):
        assert catalog.tools.page(active, None) is catalog.tools.page(active, None)
        assert catalog.resources.page(active, None) is catalog.resources.page(active, None)


# ------------------------------------------------------------------------ names, URIs, registration


@pytest.mark.parametrize("option", AppOptions.__annotations__)
def test_a_view_takes_each_option_that_type_checkers_know(option: str) -> None:
    given: Any = {option: () if option == "icons" else None}
    assert Server("s").app("chart", HTML, **given) == "ui://s/chart"


def test_an_option_that_a_view_does_not_have() -> None:
    server = Server("s")
    with pytest.raises(RegistrationError, match=r"app ui://s/chart: unknown option 'csb'; use one of name, .*csp"):
        server.app("chart", HTML, csb={})  # type: ignore[call-arg]
    assert not len(server.catalog.resources)


@pytest.mark.parametrize(
    ("server_name", "app", "uri"),
    [
        ("weather", "dashboard", "ui://weather/dashboard"),
        ("My Weather, 2", "dash-board.v2", "ui://My-Weather-2/dash-board.v2"),
        ("wéather", "x", "ui://w-ather/x"),
        ("//", "x", "ui://app/x"),
        ("weather", "ui://other/x", "ui://other/x"),
        ("weather", "ui://x", "ui://x"),
    ],
)  # fmt: skip
def test_a_name_is_short_for_a_uri(server_name: str, app: str, uri: str) -> None:
    server = Server(server_name)
    assert server.app(app, HTML) == uri
    server.add_tool(draw, ui=app)
    assert server.problems() == []


def draw() -> str:
    """Draws."""
    return "drawn"


@pytest.mark.parametrize(
    "uri",
    ["https://example.com/x", "ui:x", "UI://a/b", "ui://", "", "ui://a/b c", "ui://a/b\n", "ui://a/b#c", "ui://ä/b", 3],
)
def test_what_is_no_uri_of_a_view_is_refused(uri: Any) -> None:
    """APP-S-01: at registration, on both ends of the link."""
    server = Server("x")
    with pytest.raises(RegistrationError, match="begins with ui://|the URI must be ASCII"):
        server.app(uri, HTML)
    with pytest.raises(RegistrationError, match="tool draw, ui="):
        server.add_tool(draw, ui=uri)
    assert not len(server.catalog.tools)


@pytest.mark.parametrize(
    ("html", "reason"),
    [
        ("<p>hello", "not a complete HTML5 document: no doctype; begin it with <!doctype html>"),
        ("", "the HTML is empty"),
        ('<!DOCTYPE html PUBLIC "-//W3C//DTD HTML 4.01//EN"><p>x', "an older doctype"),
        ("<!doctype html>\ud800", "cannot be written as UTF-8"),
        (b"<!doctype html>\xff", "is not UTF-8"),
        ("<!doctype html>" + "x" * (16 * 1024 * 1024), "hosts refuse more than"),
    ],
    ids=["no doctype", "empty", "older", "surrogate", "latin-1", "too large"],
)
def test_html_that_no_host_could_show_is_refused(html: Any, reason: str) -> None:
    """APP-S-04: a complete HTML5 document of a size that hosts take."""
    with pytest.raises(RegistrationError, match=f"app ui://x/bad: .*{reason}"):
        Server("x").app("bad", html)


def test_one_uri_is_one_view() -> None:
    server = make_server()
    with pytest.raises(RegistrationError, match="resource 'ui://stage/chart' is already registered"):
        server.app(CHART, HTML)
    with pytest.raises(RegistrationError, match=r"registered with server\.app"):
        server.add_text("ui://x/y", HTML, name="y")
    with pytest.raises(RegistrationError, match="not both"):
        server.app("both", HTML, csp={}, meta={"ui": {"prefersBorder": True}})


async def test_raw_meta_of_a_view_is_read_like_data(caplog: pytest.LogCaptureFixture) -> None:
    """APP-S-13: raw `_meta` loses what cannot stand, with a warning, and nothing is raised."""
    server = Server("raw")
    server.app("raw", HTML, meta={"ui": {"csp": {"connectDomains": ["*", "https://a.example"]}, "prefersBorder": 1}})
    assert "connectDomains: '*' dropped" in caplog.text
    assert "prefersBorder: expected true or false" in caplog.text
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        (listed,) = (await wire.result("resources/list"))["resources"]
        assert listed["_meta"] == {"ui": {"csp": {"connectDomains": ["https://a.example"]}}}


# ------------------------------------------------------------------ Views whose HTML a function makes


@BOTH_ERAS
async def test_a_function_under_ui_is_a_view_for_clients_with_apps_only(version: str) -> None:
    """APP-S-02: it has the exact type, whatever its function gives; the metadata is on both."""
    server = Server("made")
    ui = {"ui": {"prefersBorder": False}}

    @server.resource("ui://made/now", meta=ui)
    async def now(ctx: Context) -> str:
        """Made for each request."""
        return f"<!doctype html><title>{ctx.protocol_version}</title>"

    @server.resource("ui://made/by-hand", mime_type="text/html; profile=mcp-app")
    def by_hand() -> TextResourceContents:
        return TextResourceContents("ui://made/by-hand", HTML, "text/html", meta={"ui": {"domain": "x.example"}})

    @server.resource("ui://made/whole")
    def whole() -> ReadResourceResult:
        return ReadResourceResult(contents=[{"uri": "ui://made/whole", "text": HTML, "mimeType": "text/plain"}])

    @server.resource("ui://made/user/{name}", meta=ui)
    def user(name: str) -> str:
        if name != "ada":
            raise ResourceNotFound(f"ui://made/user/{name}")
        return HTML

    async with memory_wire(server, version, capabilities=WITH_APPS) as wire:
        listed = (await wire.result("resources/list"))["resources"]
        assert [entry["uri"] for entry in listed] == ["ui://made/now", "ui://made/by-hand", "ui://made/whole"]
        assert {entry["mimeType"] for entry in listed} == {MIME_TYPE}
        (template,) = (await wire.result("resources/templates/list"))["resourceTemplates"]
        assert (template["mimeType"], template["_meta"]) == (MIME_TYPE, ui)
        content = await read(wire, "ui://made/now")
        assert (content["mimeType"], content["_meta"]) == (MIME_TYPE, ui)
        assert version in content["text"]
        content = await read(wire, "ui://made/by-hand")
        assert (content["mimeType"], content["_meta"]) == (MIME_TYPE, {"ui": {"domain": "x.example"}})
        assert (await read(wire, "ui://made/whole"))["mimeType"] == MIME_TYPE
        content = await read(wire, "ui://made/user/ada")
        assert (content["mimeType"], content["_meta"]) == (MIME_TYPE, ui)
        assert "error" in await wire.request("resources/read", {"uri": "ui://made/user/bob"})
        assert "error" in await wire.request("resources/read", {"uri": "ui://made/now?v=1"})
    async with memory_wire(server, version, capabilities=NO_APPS) as wire:
        assert (await wire.result("resources/list"))["resources"] == []
        assert (await wire.result("resources/templates/list"))["resourceTemplates"] == []
        for uri in ("ui://made/now", "ui://made/user/ada"):
            assert "error" in await wire.request("resources/read", {"uri": uri})


async def test_a_view_may_be_bytes_if_its_function_says_so() -> None:
    """mcp-apps-res-04: base64 of the HTML, with type and metadata."""
    server = Server("blob")

    @server.resource("ui://blob/view")
    def view() -> bytes:
        return HTML.encode()

    @server.resource("ui://blob/struct")
    def struct() -> BlobResourceContents:
        return BlobResourceContents("ui://blob/struct", HTML.encode())

    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        for uri in ("ui://blob/view", "ui://blob/struct"):
            content = await read(wire, uri)
            assert content["mimeType"] == MIME_TYPE
            assert "blob" in content
            assert "text" not in content


@pytest.mark.parametrize(
    ("uri", "mime_type", "reason"),
    [
        ("ui://x/y", "text/html", "a resource under ui:// must be text/html;profile=mcp-app"),
        ("ui://x/y", "application/json", "a resource under ui:// must be"),
        ("notes://x", MIME_TYPE, "begins with ui://"),
        ("https://x.example", "text/html; Profile=mcp-app", "begins with ui://"),
    ],
)
def test_scheme_and_type_go_together(uri: str, mime_type: str, reason: str) -> None:
    """APP-S-01, APP-S-02."""
    server = Server("x")
    with pytest.raises(RegistrationError, match=reason):
        server.resource(uri, mime_type=mime_type)(draw)
    if not uri.startswith("ui"):
        with pytest.raises(RegistrationError, match=reason):
            server.add_text(uri, HTML, name="x", mime_type=mime_type)


def test_servers_without_apps_never_load_them(child: Any) -> None:
    """Start-up is for what is used."""
    import subprocess

    code = (
        "import sys; from mcpd import Server; s = Server('x'); s.tool(lambda: 'x', name='t') if 0 else None\n"
        "s.add_tool(lambda: 'x', name='t'); s.problems()\n"
        "light = ('api', 'constants', 'extension')\n"
        "print([m for m in sys.modules if m.startswith('mcpd.server.extensions.ui.') and not m.endswith(light)])"
    )
    done = subprocess.run(
        [child.python, "-c", code],
        env={name: value for name, value in child.env.items() if not name.startswith("COVERAGE_")},
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
