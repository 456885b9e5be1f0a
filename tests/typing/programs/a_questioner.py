"""Tools that ask: what an answer holds has the type of its form."""

from dataclasses import dataclass

from mcpd import Context, EmbeddedResource, Params, Server, SyncContext, embedded, list_roots, sample
from mcpd.types import TextResourceContents, ToolChoice

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
    text: str = ctx.sample("How deep?", temperature=0.5, tool_choice=ToolChoice(mode="none")).model
    answers = ctx.ask(deep=sample("How deep?", system_prompt="Be brief."), where=list_roots())
    print(answers["deep"])
    return f"{sure} {text} {ctx.protocol_version}"


@server.tool
def show() -> EmbeddedResource:
    block = embedded("bed://south", "roses")
    if isinstance(block.resource, TextResourceContents):
        words: str = block.resource.text
    elif isinstance(block.resource, dict):
        words = str(block.resource["uri"])
    else:
        words = block.resource.blob.hex()
    print(words)
    return block
