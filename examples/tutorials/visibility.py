"""Tags, what is enabled, and who sees what."""

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
    """Not yet."""
    return "works"


@server.tool
def unlock(feature: str) -> str:
    """Let a tool be there; clients hear of it by themselves."""
    server.enable(names={feature})
    return f"{feature} unlocked"


@server.resource("data://public", tags={"public"})
def public() -> str:
    """What all may read."""
    return "public"


@server.resource("data://secret", tags={"internal"})
def secret() -> str:
    """What nobody reads for now."""
    return "secret"


async def knows_the_word(ctx: Context) -> bool:
    return ctx.headers.get("x-word") == "please"


@server.prompt(tags={"public"}, visible=knows_the_word)
def polite(topic: str) -> str:
    """For those who say please."""
    return f"Discuss: {topic}"


@server.visibility
async def dangerous_things(entry: CatalogEntry, ctx: Context) -> bool:
    return "dangerous" not in entry.tags or "admin" in ctx.user.scopes


server.disable(tags={"internal"})


if __name__ == "__main__":
    server.run(stdio=True)
