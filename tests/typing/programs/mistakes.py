"""Mistakes that a type checker has to find: each marked line is an error, and no other line is one."""

from collections.abc import Iterator

import mcpd
from mcpd import Sever  # error
from mcpd import CacheHint, CallNext, Context, Depends, MiddlewareRequest, Result, Server, TextContent, View
from mcpd.apps.host.shown_view import ShownView
from mcpd.server.http import HttpSettings
from mcpd.server.settings import Settings
from mcpd.testing import ClientMaker, mcpd_every_version
from mcpd.transports.websocket.server import WebSocketLimits

mcpd.Cleint  # error
mcpd.fastmcp()  # error

server = Server("garden", show_erors=True)  # error
block = TextContent("a")
print(block.type == "text", block.text)
print(block.words)  # error
server.app("chart", 5)  # error


@server.tool(titel="x")  # error
def water(bed: str) -> str:
    return bed


@server.tool(view="tabel")  # error
def rows() -> list[dict[str, int]]:
    return []


def get_db() -> Iterator[str]:
    yield "db"


@server.tool
def count(db: int = Depends(get_db)) -> str:  # error
    return str(db)


Depends(get_db, cached=True)  # error
server.disable(components={"tools"})  # error
server.tool(water, tags=5)  # error
server.visibility(get_db)  # error
server.override(get_db)  # error


CacheHint(60, "all")  # error
Server("x", cache=60)  # error
Server("x", cache={"tools/call": CacheHint(1)})  # error


@server.tool(timeout="5")  # error
def late() -> str:
    return ""


@server.middleware("tools/call")  # error
def plain(request: MiddlewareRequest, call_next: CallNext) -> Result:
    return Result()


View("chart", knid="bar")  # error
View("chart", kind="bars")  # error
View("table", x="month")  # error


@server.tool
def dig(bed: str) -> str:
    return bed


dig(5)  # error


server.run(gracee=1)  # error
server.run(grace="1")  # error
server.run(http=8080)  # error
Settings(gracee=1)  # error
Settings(grace="1")  # error
Settings(listeners=[5])  # error
Settings(listeners=HttpSettings())  # error
Settings(http_settings=WebSocketLimits())  # error
Settings(http_settings={"path": "/x"})  # error
Settings(ws_limits=HttpSettings())  # error
server.run(http_settings=WebSocketLimits())  # error
server.run(ws_limits=5)  # error


@server.resource("bed://south", mimetype="text/plain")  # error
def south() -> str:
    return "south"


@server.resource("bed://{name}", unsafe_paths=1)  # error
def bed(name: str) -> str:
    return name


@server.prompt(annotations={})  # error
def weed() -> str:
    return "weed"


class Form:
    size: int


async def ask(ctx: Context) -> None:
    answer = await ctx.elicit("How large?", Form)
    print(answer.get().size)
    print(answer.get().sise)  # error
    answer.got()  # error
    await ctx.elicit("How large?", Form, timeuot=5)  # error
    await ctx.elicit("How large?", 5)  # error
    await ctx.sample("How large?", temprature=1)  # error
    await ctx.sample("How large?", temperature="hot")  # error
    await ctx.notify("com.example/notes/searched", 5)  # error
    await ctx.ask(size=mcpd.sample("How large?", stop_sequences=5))  # error


def dream(view: ShownView, asked: object) -> int:
    return 5


mcpd.Hooks(sample=dream)  # error
mcpd.Question("roots/list", 5, object, {})  # error
mcpd.EmbeddedResource(5)  # error


Server("garden", lifespan=5)  # error


async def no_manager(server: Server) -> None:
    pass


Server("garden", lifespan=no_manager)  # error


@server.middleware  # error
def not_async(request: MiddlewareRequest, call_next: CallNext) -> Result:
    raise NotImplementedError


@server.middleware
async def misspelt(request: MiddlewareRequest, call_next: CallNext) -> Result:
    print(request.metod)  # error
    return await call_next(request)


Server("garden", observers=[5])  # error


def by_name(headers: dict[str, str]) -> str:
    return headers["x-user"]


by_nothing = Server("garden", authenticate=by_name)  # error
principal = mcpd.Principal("ada", scopes={5})  # error
principal.subject = 5  # error
mcpd.Principal(subject="ada", token="secret")  # error
mcpd.Refusal("401", "no")  # error


async def look(ctx: Context) -> None:
    print(ctx.user.sub)  # error
    print(ctx.headers["a"].decode())  # error
    ctx.transport = "http"  # error


server.replace("beds", [])  # error
Server("garden", apps="sometimes")  # error
Server("garden", strict_modellist=True)  # error
server.run(apps="sometimes")  # error
server.run(strict_modellist=True)  # error
server.app("chart", "<p>", prefersborder=True)  # error
server.run(listeners=[5])  # error


async def call(client: mcpd.Client) -> None:
    water: str = await client.call("count", returns=int)  # error
    beds: list[str] = await client.call("count", returns=list[int])  # error
    print(water, beds)
    await client.call("count", returns=int, timeout="soon")  # error


@mcpd_every_version(transports=["carrier"])  # error
def test_it(mcpd_client: ClientMaker) -> None:
    mcpd_client(server, transprot="http")  # error
    with mcpd_client(server) as client:
        water: str = client.call("count", returns=int)  # error
        print(water)
