"""The Server Card and its catalog: what they say, to whom, and that nothing is told that needs authorization."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.http_peer import Answer, modern, request, serving

from mcpd import Icon, Principal, Refusal, RouteResponse, Server
from mcpd.errors import ConfigurationError
from mcpd.protocol.versions import table
from mcpd.server.http import HttpSettings
from mcpd.server.settings import Options
from mcpd.transports.guards import Access

CARD, CATALOG = "/mcp/server-card", "/.well-known/ai-catalog.json"
TOKEN = ("Authorization", "Bearer t")


def make_server(name: str = "garden", **options: Any) -> Server:
    server = Server(name, version="1.2.0", instructions="secret instructions", **options)

    @server.tool
    def hidden_tool() -> str:
        return ""

    return server


def get(path: str, *headers: tuple[str, str], host: str = "localhost", method: str = "GET") -> bytes:
    return request(method, path, headers, host=host)


def card_of(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200
    assert answer["content-type"] == "application/mcp-server-card+json"
    card: dict[str, Any] = json.loads(answer.body)
    assert card["$schema"] == "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", card["name"])
    assert 1 <= len(card["description"]) <= 100
    return card


async def test_a_card_says_who_and_where() -> None:
    icons = [Icon(src="https://example.com/i.png", sizes=["48x48"])]
    server = make_server(title="The garden", description="Waters beds", website_url="https://example.com", icons=icons)
    async with serving(server) as port:
        answer = await port.ask(
            get(CARD, ("Accept", "application/mcp-server-card+json"), host=f"localhost:{port.number}")
        )
        card = card_of(answer)
        assert {key: card[key] for key in ("name", "version", "title", "description", "websiteUrl", "icons")} == {
            "name": "localhost/garden",
            "version": "1.2.0",
            "title": "The garden",
            "description": "Waters beds",
            "websiteUrl": "https://example.com",
            "icons": [{"src": "https://example.com/i.png", "sizes": ["48x48"]}],
        }
        (remote,) = card["remotes"]
        assert (remote["type"], remote["url"]) == ("streamable-http", f"http://localhost:{port.number}/mcp")
        assert remote["supportedProtocolVersions"] == [name for name in table.SUPPORTED if name >= "2025-03-26"]
        assert "headers" not in remote
        peer = await port.connect()
        peer.send(get(CARD, method="HEAD"))
        assert (await peer.head()).status == 200
        # What it offers is asked at the endpoint.
        assert b"hidden_tool" not in answer.body
        assert b"secret" not in answer.body
        # It agrees with what the server says once one is connected.
        info = (await port.ask(modern("server/discover"))).messages[-1]["result"]
        assert info["_meta"]["io.modelcontextprotocol/serverInfo"]["version"] == card["version"]


async def test_the_catalog_names_the_card() -> None:
    settings = HttpSettings(public_url="https://shop.example.com/mcp/")
    async with serving(make_server("My shop!"), settings) as port:
        answer = await port.ask(get(CATALOG))
        assert answer["content-type"] == "application/ai-catalog+json"
        assert json.loads(answer.body) == {
            "specVersion": "1.0",
            "host": {"displayName": "My shop!"},
            "entries": [
                {
                    "identifier": "urn:air:shop.example.com:mcp:My-shop",
                    "displayName": "My shop!",
                    "type": "application/mcp-server-card+json",
                    "url": "https://shop.example.com/mcp/server-card",
                }
            ],
        }
        card = card_of(await port.ask(get(CARD)))
        assert (card["name"], card["remotes"][0]["url"]) == ("com.example.shop/My-shop", "https://shop.example.com/mcp")
        assert card["description"] == "The MCP server My shop!"


@pytest.mark.parametrize(
    ("name", "host", "identifier"),
    [
        ("com.example/weather", "localhost", "urn:air:example.com:mcp:weather"),
        ("garden", "[::1]:80", "urn:air:--1:mcp:garden"),
        ("garden", "127.0.0.1", "urn:air:127.0.0.1:mcp:garden"),
    ],
)
async def test_whose_it_is_comes_first_in_the_catalog(name: str, host: str, identifier: str) -> None:
    async with serving(make_server(name)) as port:
        (entry,) = json.loads((await port.ask(get(CATALOG, host=host))).body)["entries"]
        assert entry["identifier"] == identifier
    async with serving(make_server(), HttpSettings(public_url="https://gärten.example/mcp")) as port:
        (entry,) = json.loads((await port.ask(get(CATALOG, host=host))).body)["entries"]
        assert entry["identifier"] == "urn:air:xn--grten-gra.example:mcp:garden"


@pytest.mark.parametrize("path", [CARD, CATALOG])
async def test_who_has_it_is_not_sent_it_again(path: str) -> None:
    async with serving(make_server(), HttpSettings(server_card="public")) as port:
        first = await port.ask(get(path))
        tag = first["etag"]
        assert first["access-control-expose-headers"] == "ETag"
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            peer = await port.connect()
            peer.send(get(path, ("If-None-Match", known)))
            again = await peer.head()
            assert (again.status, again["etag"], again["cache-control"]) == (304, tag, "public, max-age=3600")
        assert (await port.ask(get(path, ("If-None-Match", '"other"')))).body == first.body
        assert (await port.ask(get(path, host=f"127.0.0.1:{port.number}")))["etag"] != tag


async def test_a_card_has_a_version_whatever_the_server_says() -> None:
    server = Server("garden", version="")
    async with serving(server) as port:
        assert card_of(await port.ask(get(CARD)))["version"] == ""


async def test_below_an_endpoint_where_no_route_can_be_there_is_no_card() -> None:
    async with serving(make_server(), HttpSettings(path="/a b{c}")) as port:
        assert (await port.ask(get(CATALOG))).status == 404


@pytest.mark.parametrize("path", [CARD, CATALOG])
async def test_where_somebody_is_asked_strangers_are_told_nothing(path: str) -> None:
    async with serving(make_server(), access=Access(token="t")) as port:
        assert (await port.ask(get(path))).status == 401
        answer = await port.ask(get(path, TOKEN))
        assert (answer.status, answer["cache-control"]) == (200, "private, max-age=3600")
        assert "access-control-allow-origin" not in answer
        if path == CARD:
            assert json.loads(answer.body)["remotes"][0]["headers"] == [
                {"name": "Authorization", "isRequired": True, "isSecret": True}
            ]

    async def named(headers: Any) -> Principal | Refusal:
        return Principal(headers["x-user"]) if "x-user" in headers else Refusal(401, "Say who you are.")

    async with serving(make_server(authenticate=named)) as port:
        assert (await port.ask(get(path))).status == 401


@pytest.mark.parametrize("path", [CARD, CATALOG])
async def test_what_is_meant_for_everybody_is_told_to_pages_too(path: str) -> None:
    settings = HttpSettings(server_card="public")
    async with serving(make_server(), settings, Access(token="t")) as port:
        answer = await port.ask(get(path, ("Origin", "https://anywhere.example")))
        assert (answer.status, answer["access-control-allow-origin"]) == (200, "*")
        assert answer["cache-control"] == "public, max-age=3600"
        asked = ("Access-Control-Request-Method", "GET")
        answer = await port.ask(get(path, ("Origin", "https://anywhere.example"), asked, method="OPTIONS"))
        assert (answer.status, "GET" in answer["access-control-allow-methods"]) == (204, True)
        assert (await port.ask(modern("tools/list"))).status == 401


@pytest.mark.parametrize("path", [CARD, CATALOG])
async def test_pages_elsewhere_do_not_find_what_runs_on_this_machine(path: str) -> None:
    async with serving(make_server()) as port:
        assert (await port.ask(get(path, ("Origin", "https://anywhere.example")))).status == 403
        assert (await port.ask(get(path, host="rebound.example"))).status == 403


async def test_it_can_be_left_out_and_replaced() -> None:
    async with serving(make_server(), HttpSettings(server_card="never")) as port:
        for path in (CARD, CATALOG):
            assert (await port.ask(get(path))).status == 404
    server = make_server()

    @server.route(CATALOG, public=True)
    def own() -> RouteResponse:
        return RouteResponse({"entries": []})

    async with serving(server) as port:
        assert (await port.ask(get(CATALOG))).json == {"entries": []}


@pytest.mark.parametrize(
    ("name", "host", "expected"),
    [
        ("com.example/weather", "localhost", "com.example/weather"),
        ("garden", "127.0.0.1:80", "127.0.0.1/garden"),
        ("garden", "[::1]:80", "--1/garden"),
        ("héllo wörld", "localhost", "localhost/h-llo-w-rld"),
        ("…", "localhost", "localhost/mcpd"),
        ("x" * 300, "localhost", "localhost/" + "x" * 190),
    ],
)
async def test_any_name_becomes_one_of_a_card(name: str, host: str, expected: str) -> None:
    async with serving(make_server(name, description="d" * 500)) as port:
        card = card_of(await port.ask(get(CARD, host=host)))
        assert card["name"] == expected
        assert card["description"] == "d" * 99 + "…"


@pytest.mark.parametrize("path", ["/", "/a/b"])
async def test_it_is_below_the_endpoint_wherever_that_is(path: str) -> None:
    async with serving(make_server(), HttpSettings(path=path)) as port:
        card = card_of(await port.ask(get(f"{path.rstrip('/')}/server-card")))
        assert card["remotes"][0]["url"] == f"http://localhost{path.rstrip('/')}"


@pytest.mark.parametrize(
    "wrong", [{"public_url": "example.com"}, {"public_url": "ftp://x/y"}, {"server_card": "maybe"}]
)
async def test_settings_that_cannot_be_meant(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make_server().http_app(Access(), HttpSettings(**wrong))


def test_on_the_command_line() -> None:
    from mcpd.cli.commands.serve import options_of, serve_command as command

    with command.make_context(
        "serve", ["--http", ":1", "--server-card", "never", "--public-url", "https://e.com/m"]
    ) as c:
        options: Options = options_of(c)
    assert (options.server_card, options.public_url) == ("never", "https://e.com/m")
