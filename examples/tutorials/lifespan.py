"""A lifespan: a database that is opened once per process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mcpd import Context, Server


class Database:
    def __init__(self) -> None:
        self.connected = False

    async def connect(self) -> None:
        self.connected = True

    async def disconnect(self) -> None:
        self.connected = False

    def query(self) -> int:
        return 3


@dataclass
class AppContext:
    db: Database


@asynccontextmanager
async def app_lifespan(server: Server) -> AsyncIterator[AppContext]:
    database = Database()
    await database.connect()
    try:
        yield AppContext(db=database)
    finally:
        await database.disconnect()


server = Server("Bookshop", lifespan=app_lifespan)


@server.tool
def count_books(genre: str, ctx: Context) -> str:
    """Count the books in a genre."""
    app: AppContext = ctx.lifespan
    return f"{app.db.query()} books in {genre!r}."


@server.tool
async def database_status(ctx: Context) -> str:
    """Report whether the database connection is up."""
    return "connected" if ctx.lifespan.db.connected else "disconnected"


if __name__ == "__main__":
    server.run(stdio=True)
