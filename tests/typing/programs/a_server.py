"""A server as authors write it: nothing here may be an error to a type checker."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from mcpd import (
    CacheHint,
    CallNext,
    CatalogEntry,
    ContentBlock as Block,
    Context,
    Depends,
    MiddlewareRequest,
    RateLimit,
    Result,
    ResultLimit,
    Server,
    ToolAnnotations,
    ToolError,
    View,
    image,
    text,
)

server = Server(
    "garden",
    version="1",
    show_errors=True,
    tool_timeout=30,
    cache=CacheHint(60, "public"),
    apps="always",
    strict_model_list=True,
)


@server.tool
def water(bed: str, minutes: int = 5) -> str:
    """Water a bed."""
    if minutes > 60:
        raise ToolError("too long")
    return f"{bed}: {minutes}"


@server.tool(title="Photo", annotations=ToolAnnotations(read_only_hint=True))
async def photo(ctx: Context) -> list[Block]:
    """Take a photo."""
    await ctx.progress(1, total=2)
    return [image(b"", "image/png"), text("a bed")]


@server.tool(view=View("chart", kind="bar", x="bed", y=["harvest"], title="Harvest"))
def harvest() -> list[dict[str, float]]:
    """The harvest of each bed."""
    return []


@server.tool(view="form")
def order(seeds: str, bags: int = 1) -> str:
    """Order seeds."""
    return f"{bags} × {seeds}"


@server.resource("bed://{name}")
def bed(name: str) -> str:
    return name


Server("by method", cache={"tools/list": CacheHint(60), "resources/read": CacheHint(1.5, "private")})


@server.resource("map://{+path}", unsafe_paths=True, cache=CacheHint(5))
def map_of(path: str) -> str:
    return path


@server.resource("find://{+path}{?text}", unsafe_paths={"text"})
def find(path: str, text: str) -> str:
    return path + text


@server.prompt
def plan(season: str) -> str:
    return season


def get_soil() -> Iterator[str]:
    yield "soil"


async def get_bed(ctx: Context, soil: Annotated[str, Depends(get_soil)]) -> list[str]:
    return [soil, ctx.method]


@asynccontextmanager
async def get_pump() -> AsyncIterator[float]:
    yield 1.0


@server.tool
def pump(bed: list[str] = Depends(get_bed), soil: str = Depends(get_soil), pump: float = Depends(get_pump)) -> str:
    return f"{bed} {soil} {pump}"


with server.override(get_soil, lambda: "sand"):
    pass


def is_gardener(ctx: Context) -> bool:
    return "garden" in ctx.user.scopes


@server.visibility
async def by_tag(entry: CatalogEntry, ctx: Context) -> bool:
    return "admin" not in entry.tags and entry.component == "tool"


@server.prompt(tags={"admin"}, enabled=False, visible=is_gardener)
def admin() -> str:
    return ""


server.disable(tags={"admin"}, components={"tool"})
server.enable(names="admin", only=True)
server.visibility_changed()
uri: str = server.app("chart", Path("chart.html"))
server.tool(water, name="sprinkle")
server.prompt(plan, title="A plan")
server.middleware(RateLimit(60, per=60, burst=5, tools=["water"]))
server.middleware("tools/call")(ResultLimit(100_000, keep_seconds=60))


@server.middleware
async def watch(request: MiddlewareRequest, call_next: CallNext) -> Result:
    return await call_next(request)


@server.middleware("tools/call", "prompts/get")
async def change(request: MiddlewareRequest, call_next: CallNext) -> Result:
    request.arguments = {**request.arguments, "caller": request.caller}
    return await call_next(request)


@server.tool(timeout=5)
def slow() -> str:
    return ""


named: str = water("south")


def main() -> None:
    server.run(http=":8080", grace=10, allowed_hosts=("garden.example",), max_threads=8, apps="never")


if __name__ == "__main__":
    server.run(ws=":8080")
