"""The client's model, and the folders that it shares."""

from typing import Annotated

from mcpd import Context, CreateMessageResult, Depends, Root, Server, TextContent

server = Server("Bookshop")


def text_of(message: CreateMessageResult) -> str:
    content = message.content
    block = content[0] if isinstance(content, list) else content
    return block.text if isinstance(block, TextContent) else str(block)


@server.tool
async def generate_poem(topic: str, ctx: Context) -> str:
    """Write a poem with the client's model."""
    return text_of(await ctx.sample(f"Write a short poem about {topic}", max_tokens=100))


async def draft_blurb(title: str, ctx: Context) -> CreateMessageResult:
    return await ctx.sample(f"Write a one-sentence blurb for the book {title!r}.", max_tokens=60, temperature=0.2)


@server.tool
async def blurb(title: str, draft: Annotated[CreateMessageResult, Depends(draft_blurb)]) -> str:
    """Draft a blurb for a book. A dependency samples the draft before the tool runs."""
    return text_of(draft)


async def workspace_roots(ctx: Context) -> list[Root]:
    return await ctx.list_roots()


@server.tool
async def catalog_folder(roots: Annotated[list[Root], Depends(workspace_roots)]) -> str:
    """Pick the folder that the catalog is exported to."""
    return roots[0].uri if roots else "No workspace folders shared."


if __name__ == "__main__":
    server.run(stdio=True)
