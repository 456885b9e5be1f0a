"""The context: the client, progress, log messages, and a list of tools that changes while the server runs."""

import logging
from collections.abc import AsyncIterator

from mcpd import Context, Server, SyncContext

server = Server("Bookshop")

logger = logging.getLogger(__name__)


@server.tool
def search_books(query: str, ctx: SyncContext) -> str:
    """Search the catalog by title or author."""
    logger.info("Searching for %r", query)
    return f"[{ctx.method} of {ctx.client_info.name if ctx.client_info else 'somebody'}] Found 3 books for {query!r}."


@server.resource("catalog://genres")
def genres() -> str:
    """The genres the catalog is organised into."""
    return "fiction, non-fiction, poetry"


@server.tool
async def describe_catalog() -> str:
    """Describe how the catalog is organised. The function of a resource can be called like any other."""
    return f"The catalog is organised into: {genres()}"


@server.tool
async def import_catalog(urls: list[str], ctx: Context) -> str:
    """Import book records from a list of catalog URLs."""
    for done, url in enumerate(urls, start=1):
        await ctx.progress(done, total=len(urls), message=f"Imported {url}")
    return f"Imported {len(urls)} records."


async def fetch_records(feed_url: str) -> AsyncIterator[str]:
    for title in ("Dune", "Neuromancer", "Hyperion"):
        yield f"{feed_url}#{title}"


@server.tool
async def import_feed(feed_url: str, ctx: Context) -> str:
    """Import every record that a feed yields."""
    imported = 0
    async for record in fetch_records(feed_url):
        imported += 1
        await ctx.progress(imported, message=f"Imported {record}")
    return f"Imported {imported} records."


@server.tool
def long_running_task(task_name: str, ctx: SyncContext, steps: int = 5) -> str:
    """Execute a task with progress updates in a plain function."""
    ctx.info(f"Starting: {task_name}")
    for step in range(steps):
        ctx.progress((step + 1) / steps, total=1.0, message=f"Step {step + 1}/{steps}")
        ctx.debug(f"Completed step {step + 1}")
    return f"Task '{task_name}' completed"


@server.tool
async def process_data(data: str, ctx: Context) -> str:
    """Process data with logging."""
    await ctx.debug(f"Processing {data!r}")
    await ctx.info("Starting processing")
    await ctx.warning("This is experimental")
    await ctx.error("This is just a demo")
    return f"Processed: {data}"


def recommend_book(genre: str) -> str:
    """Recommend a book in the given genre."""
    return f"In {genre}, try 'Dune'."


@server.tool
async def enable_recommendations() -> str:
    """Add the recommendation tool; clients are notified."""
    server.remove_tool("recommend_book")
    server.add_tool(recommend_book)
    return "Recommendations are now available."


if __name__ == "__main__":
    server.run(stdio=True)
