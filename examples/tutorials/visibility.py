"""Tags, disabled entries, and visibility rules."""

from mcpd import CatalogEntry, Context, Server

server = Server("Tagged")


@server.tool(tags={"public", "read"})
def get_data() -> str:
    """Get the data."""
    return "data"


@server.tool(tags={"admin", "write"})
def set_data(value: str) -> str:
    """Set the data."""
    return f"Set: {value}"


@server.tool(tags={"admin", "dangerous"})
def delete_data() -> str:
    """Delete the data."""
    return "Deleted"


@server.tool(enabled=False)
def experiment() -> str:
    """Not ready yet."""
    return "works"


@server.tool
def unlock(feature: str) -> str:
    """Enable a tool; clients are notified."""
    server.enable(names={feature})
    return f"{feature} unlocked"


@server.resource("data://public", tags={"public"})
def public() -> str:
    """Data that everybody may read."""
    return "public"


@server.resource("data://secret", tags={"internal"})
def secret() -> str:
    """Data that is disabled."""
    return "secret"


async def knows_the_word(ctx: Context) -> bool:
    return ctx.headers.get("x-word") == "please"


@server.prompt(tags={"public"}, visible=knows_the_word)
def polite(topic: str) -> str:
    """Discuss a topic, for clients that send the right header."""
    return f"Discuss: {topic}"


@server.visibility
async def dangerous_things(entry: CatalogEntry, ctx: Context) -> bool:
    return "dangerous" not in entry.tags or "admin" in ctx.user.scopes


server.disable(tags={"internal"})


if __name__ == "__main__":
    server.run(stdio=True)
