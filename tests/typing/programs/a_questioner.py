"""Tools that ask: what an answer holds has the type of its form."""

from dataclasses import dataclass

from mcpd import Context, Params, Server, SyncContext

server = Server("garden")
notes = server.extension("com.example/notes", settings={"a": 1})


@dataclass
class Confirmation:
    really: bool


@server.tool
async def clear(ctx: Context) -> str:
    """Clear all beds."""
    answer = await ctx.elicit("All of them?", Confirmation, timeout=60)
    really: bool = answer.is_accepted and answer.get().really
    data = await ctx.elicit("Which?", {"type": "object", "properties": {"bed": {"type": "string"}}})
    bed: object = data.get()["bed"]
    return f"{really} {bed}"


class SearchParams(Params, kw_only=True):
    text: str


@server.method("com.example/notes/search", SearchParams)
async def search(ctx: Context, params: SearchParams) -> dict[str, str]:
    await ctx.notify("com.example/notes/searched", {"text": params.text})
    return {"found": params.text}


@server.tool
def dig(ctx: SyncContext) -> str:
    """A plain function: nothing is awaited."""
    ctx.progress(1, total=2)
    ctx.info("digging")
    sure: bool = ctx.elicit("Sure?", Confirmation).get().really
    text: str = ctx.sample("How deep?").model
    return f"{sure} {text} {ctx.protocol_version}"
