"""Dependencies: parameters whose values come from the server."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

from pydantic import BaseModel, Field

from mcpd import Context, Depends, Server

server = Server("Bookshop")

INVENTORY = {"Dune": 7, "Neuromancer": 0}


class Stock(BaseModel):
    title: str
    copies: int


async def check_stock(title: str) -> Stock:
    return Stock(title=title, copies=INVENTORY.get(title, 0))


async def estimate_delivery(stock: Annotated[Stock, Depends(check_stock)]) -> str:
    return "tomorrow" if stock.copies > 0 else "in 2-3 weeks"


@server.tool
async def order_book(
    title: str, stock: Annotated[Stock, Depends(check_stock)], delivery: Annotated[str, Depends(estimate_delivery)]
) -> str:
    """Order a book from the shop. The model cannot invent the stock."""
    if stock.copies == 0:
        return f"{title!r} is on backorder; it would arrive {delivery}."
    return f"Ordered {title!r}; it arrives {delivery}."


class Backorder(BaseModel):
    confirm: bool = Field(description="Order anyway and wait?")


async def confirm_backorder(title: str, stock: Annotated[Stock, Depends(check_stock)], ctx: Context) -> Backorder:
    if stock.copies > 0:
        return Backorder(confirm=True)  # in stock: nothing to ask
    return (await ctx.elicit(f"{title!r} is out of stock (2-3 weeks). Order anyway?", Backorder)).get()


@server.tool
async def reserve_book(title: str, backorder: Annotated[Backorder, Depends(confirm_backorder)]) -> str:
    """Reserve a book. Asks the user only if the book is out of stock."""
    return f"Reserved {title!r}." if backorder.confirm else "No order placed."


def get_config() -> dict[str, str]:
    return {"api_url": "https://api.example.com"}


def get_user_id(ctx: Context) -> str:
    return ctx.user.subject or "guest"


@server.tool
async def fetch_data(
    query: str, config: dict[str, str] = Depends(get_config), user_id: str = Depends(get_user_id)
) -> str:
    """Fetch data. Dependencies may be written as defaults, too."""
    return f"{user_id} fetching {query!r} from {config['api_url']}"


class Database:
    def __init__(self) -> None:
        self.statements: list[str] = []

    def execute(self, sql: str) -> list[str]:
        self.statements.append(sql)
        return self.statements


@asynccontextmanager
async def get_database() -> AsyncIterator[Database]:
    db = Database()
    try:
        yield db
    finally:
        db.statements.clear()


def get_transaction(db: Annotated[Database, Depends(get_database)]) -> Iterator[Database]:
    db.execute("begin")
    try:
        yield db
    except BaseException:
        db.execute("rollback")
        raise
    else:
        db.execute("commit")


@server.tool
def query_users(sql: str, db: Database = Depends(get_database), same: Database = Depends(get_transaction)) -> list[str]:
    """Query users with one connection, which is closed after the call."""
    assert db is same
    return list(db.execute(sql))


@server.resource("data://config")
def config_resource(config: dict[str, str] = Depends(get_config)) -> str:
    """The configuration. Resources, templates and prompts have dependencies, too."""
    return config["api_url"]


@server.prompt
def analyze(topic: str, config: dict[str, str] = Depends(get_config)) -> str:
    """Analyze a topic with the configured API."""
    return f"Analyze {topic} with {config['api_url']}"


if __name__ == "__main__":
    server.run(stdio=True)
