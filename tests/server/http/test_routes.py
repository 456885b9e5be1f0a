"""HTTP routes beside the endpoint: an author's own, on the wire, with the checks in front of them."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct
from support.http_peer import Answer, post, request, serving
from support.http_stage import Stage

from mcpd import Principal, Refusal, ResourceNotFound, RouteRequest, RouteResponse, Server
from mcpd.errors import ConfigurationError, RegistrationError
from mcpd.server.http import HttpSettings, Route
from mcpd.transports.guards import Access

PAGE = "https://app.example.com"
TOKEN = [("Authorization", "Bearer t")]


def error_of(answer: Answer) -> dict[str, str]:
    body: dict[str, str] = answer.json
    assert set(body) == {"error", "error_description"}
    return body


def get(path: str, *headers: tuple[str, str], method: str = "GET", body: bytes = b"") -> bytes:
    return request(method, path, headers, body)


# --------------------------------------------------------------------------------------- what it gets


async def test_a_request_as_it_came() -> None:
    server = Server("shop")
    seen: list[RouteRequest] = []

    @server.route("/orders/{id}/items/{item}", methods=["GET", "PUT"])
    async def order(asked: RouteRequest) -> str:
        seen.append(asked)
        return "ok"

    async with serving(server) as port:
        data = get("/orders/7/items/a%20b?x=1&x=2&y=&z=%C3%A9", ("X-Seal", "abc"), method="PUT", body=b'{"n":1}')
        answer = await port.ask(data)
    assert (answer.status, answer.body, answer["content-type"]) == (200, b"ok", "text/plain; charset=utf-8")
    (asked,) = seen
    assert (asked.method, asked.path, asked.params) == ("PUT", "/orders/7/items/a b", {"id": "7", "item": "a b"})
    assert asked.query == {"x": "2", "y": "", "z": "é"}
    assert asked.query_string == "x=1&x=2&y=&z=%C3%A9"
    assert (asked.headers["X-Seal"], asked.headers["x-seal"]) == ("abc", "abc")
    assert (asked.json(), asked.body) == ({"n": 1}, b'{"n":1}')
    assert (asked.client, asked.root_path, asked.user.is_authenticated) == ("127.0.0.1", "", False)


class Order(Struct):
    amount: int


async def test_a_body_that_does_not_fit_is_400() -> None:
    server = Server("shop")

    @server.route("/orders", methods=["POST"])
    async def order(asked: RouteRequest) -> Any:
        return {"twice": 2 * asked.json(Order).amount}

    async with serving(server) as port:
        assert (await port.ask(get("/orders", method="POST", body=b'{"amount": 2}'))).json == {"twice": 4}
        for body in (b'{"amount": "x"}', b"{", b"[" * 100_000, b"\xff"):
            answer = await port.ask(get("/orders", method="POST", body=body))
            assert answer.status == 400
            assert error_of(answer)["error"] == "invalid_request"
        assert (
            "amount: expected int"
            in error_of(await port.ask(get("/orders", method="POST", body=b'{"amount": "x"}')))["error_description"]
        )


@pytest.mark.parametrize("is_public", [True, False])
async def test_a_plain_function_runs_in_a_thread(is_public: bool) -> None:
    server = Server("shop")
    threads: list[threading.Thread] = []

    @server.route("/where", public=is_public)
    def where() -> list[int]:
        threads.append(threading.current_thread())
        return [1]

    async with serving(server) as port:
        assert (await port.ask(get("/where"))).json == [1]
    assert threads[0] is not threading.current_thread()


async def test_the_lifespan_is_open_and_given() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        steps.append("open")
        yield "the database"
        steps.append("closed")

    server = Server("shop", lifespan=lifespan)

    @server.route("/db")
    async def db(asked: RouteRequest) -> str:
        return str(asked.lifespan)

    async with serving(server) as port:
        assert (await port.ask(get("/healthz"))).status == 200
        assert steps == []
        assert (await port.ask(get("/db"))).body == b"the database"
        assert steps == ["open"]
    await server.aclose()


async def test_a_lifespan_that_fails_is_503() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    server = Server("shop", lifespan=lifespan)
    server.route("/db")(lambda: "never")
    async with serving(server) as port:
        answer = await port.ask(get("/db"))
        assert (answer.status, error_of(answer)["error"]) == (503, "temporarily_unavailable")
        assert (await port.ask(get("/healthz"))).status == 200


# ------------------------------------------------------------------------------------ what it answers


class Point(Struct):
    x: int


ANSWERS: list[tuple[object, int, str, bytes]] = [
    ("é", 200, "text/plain; charset=utf-8", "é".encode()),
    (b"\x00", 200, "application/octet-stream", b"\x00"),
    ({"a": [1, None]}, 200, "application/json", b'{"a":[1,null]}'),
    (Point(1), 200, "application/json", b'{"x":1}'),
    (False, 200, "application/json", b"false"),
    (RouteResponse("<p>", content_type="text/html"), 200, "text/html", b"<p>"),
    (RouteResponse({}, 201, {"Content-Type": "application/x"}), 201, "application/x", b"{}"),
    (RouteResponse([], 418), 418, "application/json", b"[]"),
    (RouteResponse("", 299), 299, "text/plain; charset=utf-8", b""),
    (Refusal(404, "No such order.\n"), 404, "application/json", b""),
]


@pytest.mark.parametrize(("given", "status", "kind", "body"), ANSWERS, ids=lambda value: str(value)[:30])
async def test_what_may_be_given(given: object, status: int, kind: str, body: bytes) -> None:
    server = Server("shop")
    server.route("/x")(lambda: given)
    async with serving(server) as port:
        peer = await port.connect()
        answer = await peer.ask(get("/x"))
        assert (answer.status, answer["content-type"]) == (status, kind)
        if isinstance(given, Refusal):
            assert error_of(answer) == {"error": "not_found", "error_description": "No such order."}
        else:
            assert answer.body == body
        # HEAD: the same head, and no body before the next answer.
        peer.send(get("/x", method="HEAD"))
        head = await peer.head()
        assert (head.status, head.headers[1:]) == (answer.status, answer.headers[1:])
        assert (await peer.ask(get("/healthz"))).body == b"ok\n"


@pytest.mark.parametrize(("given", "status"), [(None, 204), (RouteResponse(status=304, headers={"ETag": '"1"'}), 304)])
async def test_answers_without_a_body(given: object, status: int) -> None:
    """RFC 9110 8.6: no Content-Length in 204."""
    server = Server("shop")
    server.route("/x", methods=["GET", "POST"])(lambda: given)
    async with serving(server) as port:
        peer = await port.connect()
        for method in ("GET", "POST"):
            peer.send(get("/x", method=method))
            head = await peer.head()
            assert head.status == status
            assert "content-length" not in head
            assert "transfer-encoding" not in head
        assert (await peer.ask(get("/healthz"))).body == b"ok\n"


async def test_headers_that_come_twice() -> None:
    server = Server("shop")
    pairs = (("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
    server.route("/x")(lambda: RouteResponse("", headers=pairs))
    async with serving(server) as port:
        answer = await port.ask(get("/x"))
    assert [value for name, value in answer.headers if name == "set-cookie"] == ["a=1", "b=2"]


UNSENDABLE = [
    RouteResponse("", 99),
    RouteResponse("", 600),
    RouteResponse("", headers={"X-A": "1\r\nX-B: 2"}),
    RouteResponse("", headers={"X A": "1"}),
    RouteResponse("", headers={"X-A": "€"}),
    RouteResponse("", headers={"Content-Length": "7"}),
    RouteResponse("", headers={"Transfer-Encoding": "chunked"}),
    RouteResponse("", content_type="text/plain\r\nX-B: 2"),
    RouteResponse("", "200"),  # type: ignore[arg-type]
    RouteResponse("", True),
    Refusal(600, "no"),
    Refusal(204, "a text that it cannot have"),
    Refusal(302, "", (("Location", "/\r\nX-B: 2"),)),
    Refusal(400, "", (("Content-Length", "7"),)),
    "\ud800",
    lambda: "not called",
]


@pytest.mark.parametrize("given", UNSENDABLE, ids=range(len(UNSENDABLE)))
async def test_what_cannot_be_sent_is_500_and_logged(given: object, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shop")
    server.route("/x")(lambda: given)
    async with serving(server) as port:
        peer = await port.connect()
        answer = await peer.ask(get("/x"))
        assert (answer.status, error_of(answer)["error"]) == (500, "server_error")
        assert "x-b" not in answer
        assert (await peer.ask(get("/healthz"))).body == b"ok\n"
    assert "The result of the route /x cannot be sent" in caplog.text


@pytest.mark.parametrize(
    "error", [RuntimeError("the secret"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_that_fails_is_500_and_logged(
    error: BaseException, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("shop")

    async def fails() -> None:
        raise error

    def fails_in_thread() -> None:
        raise error

    server.route("/x")(fails if is_async else fails_in_thread)
    async with serving(server) as port:
        answer = await port.ask(get("/x"))
        assert (answer.status, error_of(answer)["error"]) == (500, "server_error")
        assert b"secret" not in answer.body
        assert (await port.ask(get("/healthz"))).status == 200
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "The route /x failed"
    assert record.exc_info is not None
    assert record.exc_info[1] is error


async def test_what_is_not_there_is_404() -> None:
    server = Server("shop")

    @server.route("/orders/{id}")
    async def order(asked: RouteRequest) -> None:
        raise ResourceNotFound(f"order {asked.params['id']}")

    async with serving(server) as port:
        answer = await port.ask(get("/orders/7"))
    assert answer.status == 404
    assert error_of(answer)["error_description"] == "Resource not found: order 7"


# -------------------------------------------------------------------------------------- paths, methods


async def test_which_route_it_is() -> None:
    """An exact path first, then in their order; each method by itself."""
    server = Server("shop")
    for path, methods in (
        ("/a/{x}", ["GET"]),
        ("/{y}/b", ["GET", "POST"]),
        ("/a/b", ["DELETE"]),
        ("/a/c", ["GET"]),
        ("/a.b", ["GET"]),
    ):
        server.route(path, methods=methods)(lambda path=path: path)
    async with serving(server) as port:
        peer = await port.connect()
        for method, path, expected in (
            ("GET", "/a/b", "/a/{x}"),
            ("POST", "/a/b", "/{y}/b"),
            ("DELETE", "/a/b", "/a/b"),
            ("GET", "/a/c", "/a/c"),
            ("GET", "/a.b", "/a.b"),
        ):
            assert (await peer.ask(get(path, method=method))).text == expected
        for path in ("/a/", "/a/b/", "/a/x/y", "/a", "/axb", "/A/c", "/a/..", "/a/%2e%2e", "/a/x%2Fy", "/a/."):
            answer = await peer.ask(get(path))
            assert (answer.status, error_of(answer)["error"]) == (404, "not_found"), path
        wrong = await peer.ask(get("/a/b", method="PUT"))
        assert (wrong.status, error_of(wrong)["error"]) == (405, "method_not_allowed")
        assert wrong["allow"] == "DELETE, GET, HEAD, POST"


@pytest.mark.parametrize(
    ("route", "path", "params"),
    [
        ("/{a}-{b}", "/1-2-3", {"a": "1-2", "b": "3"}),
        ("/{a}{b}", "/123", {"a": "12", "b": "3"}),
        ("/{a}-{b}.html", "/--.html", None),
        ("/{a}-{b}.html", "/---.html", {"a": "-", "b": "-"}),
        ("/{a}-{b}/x/{c}", "/1-2/x/3-4", {"a": "1", "b": "2", "c": "3-4"}),
        ("/{a}-x/{b}", "/1-x-x/2", {"a": "1-x", "b": "2"}),
        ("/{a}-{b}", "/1/2-3", None),
        ("/{a}", "/..\\..\\x", None),
        ("/{a}", "/x\0.png", None),
        ("/{a}/", "/1/", {"a": "1"}),
        ("/{a}x", "/x", None),
    ],
)
def test_how_a_path_is_cut(route: str, path: str, params: dict[str, str] | None) -> None:
    assert Route(route, lambda: None).match(path) == params


async def test_a_path_that_could_be_cut_in_many_ways_takes_no_time() -> None:
    server = Server("shop")
    server.route("/{year}-{month}-{day}-{hour}.html", public=True)(lambda: "a day")
    async with serving(server) as port:
        answer = await asyncio.wait_for(port.ask(get("/" + "-" * 30_000)), 30)
    assert answer.status == 404


async def test_routes_may_come_while_it_serves() -> None:
    server = Server("shop")
    async with serving(server) as port:
        assert (await port.ask(get("/later"))).status == 404
        server.route("/later")(lambda: "now")
        assert (await port.ask(get("/later"))).body == b"now"


async def test_own_health() -> None:
    """It goes before ours, for the methods that it has; those of the settings go before all."""
    server = Server("shop")
    server.route("/healthz", public=True)(lambda: RouteResponse("no database", 503))
    settings = HttpSettings(routes=[Route("/readyz", lambda: "set", public=True)])
    async with serving(server, settings) as port:
        assert (await port.ask(get("/healthz"))).status == 503
        assert (await port.ask(get("/readyz"))).body == b"set"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_the_endpoint_is_no_route(path: str) -> None:
    server = Server("shop")
    server.route(path)(lambda: "")
    with pytest.raises(ConfigurationError, match="path of the MCP endpoint"):
        server.asgi_app()
    assert server.asgi_app(settings=HttpSettings(path="/other")).paths[0] == "/other"


def _needs_two(one: Any, two: Any) -> None: ...


REFUSED: list[tuple[str, dict[str, Any], Any, str]] = [
    ("x", {}, len, "its path begins with /"),
    ("/x?a=b", {}, len, "its path begins with /"),
    ("/x", {"methods": "GET"}, len, "methods are a list"),
    ("/x", {"methods": []}, len, "methods are a list"),
    ("/x", {"methods": ["get"]}, len, "in capitals"),
    ("/x", {"any_origin": True}, len, "public=True"),
    ("/x/{}", {}, len, "its parameters need different names"),
    ("/{a}/{a}", {}, len, "its parameters need different names"),
    ("/{a", {}, len, "is written {name}"),
    ("/x", {}, _needs_two, "must take the request, or nothing"),
    ("/x", {}, "text", "is not a function"),
]


@pytest.mark.parametrize(("path", "options", "function", "why"), REFUSED)
def test_what_cannot_be_registered(path: str, options: dict[str, Any], function: Any, why: str) -> None:
    with pytest.raises(RegistrationError, match=why):
        Server("shop").route(path, **options)(function)


def test_a_path_is_taken_once() -> None:
    server = Server("shop")
    server.route("/x", methods=["GET"])(lambda: "")
    server.route("/x", methods=["POST"])(lambda: "")
    with pytest.raises(RegistrationError, match="already registered for POST"):
        server.route("/x", methods=["POST", "PUT"])(lambda: "")


# ------------------------------------------------------------------------------------------- admission


async def test_host_and_origin_stand_in_front() -> None:
    server = Server("shop")
    called: list[str] = []
    server.route("/x", public=True, methods=["GET", "POST"])(lambda: called.append("x"))
    async with serving(server) as port:
        for data in (request("GET", "/x", host="evil.example"), get("/x", ("Origin", PAGE), method="POST")):
            answer = await port.ask(data)
            assert (answer.status, error_of(answer)["error"]) == (403, "access_denied")
        assert not called


async def test_who_is_asked() -> None:
    """The same as for the endpoint, and nobody on a public route. A method that is not there asks nobody."""

    async def authenticate(headers: Mapping[str, str]) -> Principal | Refusal:
        await asyncio.sleep(0)
        return Principal("ada") if headers.get("authorization") == "Bearer t" else Refusal(401, "Who are you?")

    server = Server("shop", authenticate=authenticate)
    called: list[str] = []

    @server.route("/mine")
    async def mine(asked: RouteRequest) -> str:
        called.append(asked.user.subject)
        return asked.user.subject

    @server.route("/open", public=True)
    async def everybodys(asked: RouteRequest) -> str:
        return asked.user.subject or "nobody"

    async with serving(server) as port:
        wrong = await port.ask(get("/mine"))
        assert (wrong.status, error_of(wrong)["error"]) == (401, "invalid_token")
        assert wrong["www-authenticate"] == "Bearer"
        assert not called
        assert (await port.ask(get("/mine", *TOKEN))).body == b"ada"
        assert (await port.ask(get("/open", *TOKEN))).body == b"nobody"
        assert (await port.ask(get("/mine", method="PUT"))).status == 405


async def test_named_pages_may_use_it() -> None:
    server = Server("shop")
    server.route("/x", methods=["PUT"])(lambda: "put")
    async with serving(server, access=Access(origins=(PAGE,))) as port:
        asked = (("Origin", PAGE), ("Access-Control-Request-Method", "PUT"))
        preflight = await port.ask(get("/x", *asked, method="OPTIONS"))
        assert (preflight.status, preflight["access-control-allow-origin"]) == (204, PAGE)
        assert preflight["access-control-allow-methods"] == "PUT"
        answer = await port.ask(get("/x", ("Origin", PAGE), method="PUT"))
        assert (answer.body, answer["access-control-allow-origin"]) == (b"put", PAGE)


async def test_any_origin() -> None:
    """Each method by itself: what only some may do is not open for what all may read. Hosts are checked as ever."""
    server = Server("shop", authenticate=lambda headers: Refusal(401, "no"))
    server.route("/card", public=True, any_origin=True)(lambda: {"name": "shop"})
    server.route("/card", methods=["PUT"])(lambda: "changed")
    async with serving(server) as port:
        answer = await port.ask(get("/card", ("Origin", PAGE)))
        assert (answer.json, answer["access-control-allow-origin"]) == ({"name": "shop"}, "*")
        asked = (("Origin", PAGE), ("Access-Control-Request-Method", "PUT"))
        preflight = await port.ask(get("/card", *asked, method="OPTIONS"))
        assert (preflight.status, preflight["access-control-allow-methods"]) == (204, "GET, HEAD")
        put = await port.ask(get("/card", ("Origin", PAGE), method="PUT"))
        assert put.status == 403
        assert "access-control-allow-origin" not in put
        assert (await port.ask(request("GET", "/card", host="evil.example"))).status == 403


# ---------------------------------------------------------------------------------------------- limits


async def test_a_body_over_the_limit_is_413() -> None:
    server = Server("shop")
    sizes: list[int] = []
    server.route("/x", methods=["POST"])(lambda asked: sizes.append(len(asked.body)))
    async with serving(server, HttpSettings(max_body_bytes=1000)) as port:
        assert (await port.ask(get("/x", method="POST", body=b"x" * 1000))).status == 204
        answer = await port.ask(get("/x", method="POST", body=b"x" * 1001))
        assert (answer.status, error_of(answer)["error"]) == (413, "invalid_request")
        assert answer["connection"] == "close"
        chunked = b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = await port.ask(chunked + b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n")
        assert answer.status == 413
    assert sizes == [1000]


async def test_a_body_that_does_not_come_is_408() -> None:
    server = Server("shop")
    server.route("/x", methods=["POST"])(lambda: "never")
    async with serving(server, HttpSettings(body_timeout=0.05)) as port:
        answer = await port.ask(get("/x", method="POST", body=b"whole")[:-1])
    assert answer.status == 408


async def test_one_client_leaves_threads_to_others() -> None:
    """A public route whose function hangs takes its client's share of the threads, as a tool does."""
    from mcpd.server.functions.threads import limit_threads

    limit_threads(8, 0.05)
    server = Server("shop")
    go_on = threading.Event()
    server.route("/hang", public=True)(lambda: go_on.wait(60) and None)
    server.tool(_short)
    async with serving(server) as port:
        peers = [await port.connect() for _ in range(12)]
        try:
            for peer in peers:
                peer.send(get("/hang"))
            statuses: list[int] = []
            reads = [asyncio.ensure_future(peer.answer()) for peer in peers]
            while len(statuses) < 4:
                done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                statuses += [read.result().status for read in done]
                reads = [read for read in reads if read not in done]
            assert {*statuses} == {503}
        finally:
            go_on.set()
        assert {(await read).status for read in reads} == {204}


def _short() -> str:
    return "short"


# ---------------------------------------------------------------------------------------------- ending


async def test_routes_that_run_are_waited_for() -> None:
    server = Server("shop")
    began, go_on = asyncio.Event(), asyncio.Event()

    @server.route("/slow")
    async def slow() -> str:
        began.set()
        await go_on.wait()
        return "done"

    async with serving(server) as port:
        peer = await port.connect()
        peer.send(get("/slow"))
        await began.wait()
        port.listener.pause()
        ending = [asyncio.ensure_future(running.finish(60)) for running in port.listener.connections]
        go_on.set()
        await asyncio.wait(ending)
        assert (await peer.answer()).body == b"done"


async def test_routes_that_do_not_end_are_stopped(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shop")
    began, cancelled = asyncio.Event(), asyncio.Event()

    @server.route("/endless")
    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(server) as port:
        peer = await port.connect()
        peer.send(get("/endless"))
        await began.wait()
        await port.listener.aclose()
        answer = await peer.answer()
        assert (answer.status, error_of(answer)["error"]) == (503, "temporarily_unavailable")
    assert cancelled.is_set()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# ------------------------------------------------------------------------------------- other ways of serving


async def _ask(app: Any, method: str, path: str, root: str, body: bytes = b"") -> tuple[int, bytes]:
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {"type": "http", "method": method, "path": path, "root_path": root, "headers": [(b"host", b"localhost")]}
    await app(scope, receive, send)
    return said[0]["status"], said[1]["body"]


@pytest.mark.parametrize(("path", "root"), [("/x/1", ""), ("/garden/x/1", "/garden"), ("/x/1", "/garden")])
async def test_mounted_in_another_application(path: str, root: str) -> None:
    server = Server("shop")

    @server.route("/x/{n}", methods=["POST"])
    async def x(asked: RouteRequest) -> Any:
        return [asked.path, asked.root_path, asked.params["n"], asked.body.decode()]

    status, body = await _ask(server.asgi_app(), "POST", path, root, b"hello")
    assert status == 200
    assert json.loads(body) == ["/x/1", root, "1", "hello"]


async def test_the_endpoint_goes_on_beside_them() -> None:
    stage = Stage()
    stage.server.route("/{any}")(lambda: "route")
    async with serving(stage.server) as port:
        assert (await port.ask(post({"jsonrpc": "2.0", "id": 1, "method": "ping"}))).json["result"] == {}
        assert (await port.ask(get("/other"))).body == b"route"
