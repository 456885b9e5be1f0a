"""A garden shop whose results are seen: a table, charts, Markdown, an image and a form, without a line of HTML.

mcpd serve examples/views.py
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mcpd import EmbeddedResource, Server, ToolError, View, embedded

server = Server("garden-shop", version="1.0", instructions="Stock, sales and orders of a small garden shop.")


class Article(Struct):
    """An article in stock."""

    number: int
    name: str
    price: Annotated[float, Meta(description="In euros")]
    stock: int
    delivered: date


class Sales(Struct):
    """The sales of one week, in euros."""

    week: date
    seeds: float
    tools: float
    pots: float


class Order(Struct):
    """An order as it was taken."""

    article: str
    pieces: int
    total: float
    ready: date


FIRST = date(2026, 1, 5)
ARTICLES = [
    Article(101, "Carrot seeds", 2.49, 340, FIRST),
    Article(102, "Tomato seeds", 2.99, 12, FIRST + timedelta(days=9)),
    Article(201, "Spade", 34.9, 18, FIRST + timedelta(days=2)),
    Article(202, "Watering can", 19.5, 0, FIRST - timedelta(days=60)),
    Article(301, "Clay pot, 20 cm", 6.75, 96, FIRST + timedelta(days=16)),
    Article(302, "Clay pot, 40 cm", 15.25, 41, FIRST + timedelta(days=16)),
]


@server.tool(view="table", title="Stock")
def stock(at_most: int | None = None) -> list[Article]:
    """List the articles in stock. `at_most` selects those with at most that number of pieces."""
    return [article for article in ARTICLES if at_most is None or article.stock <= at_most]


@server.tool(view=View("chart", kind="area", stacked=True, title="Sales by week, in euros"))
def sales(weeks: Annotated[int, Meta(ge=1, le=52)] = 12) -> list[Sales]:
    """Return the sales of each of the last weeks, by kind of article."""
    return [
        Sales(FIRST + timedelta(weeks=week), 120 + week * 31 % 90, 300 + week * 47 % 160, 80 + week * 13 % 70)
        for week in range(weeks)
    ]


@server.tool(view=View("chart", kind="bar", x="name", y=["stock"], title="Pieces in stock"))
def levels() -> list[Article]:
    """How many pieces of each article are left, as bars."""
    return ARTICLES


@server.tool(view="markdown", title="How to")
def advice(plant: Literal["carrots", "tomatoes"]) -> str:
    """How a plant is grown."""
    deep, apart = (1, 5) if plant == "carrots" else (2, 50)
    return (
        f"# {plant.capitalize()}\n\nSow them **{deep} cm** deep and *{apart} cm* apart.\n\n"
        "| Month | Work |\n| :-- | :-- |\n| March | sow |\n| May | thin out |\n| August | harvest |\n\n"
        "- [x] loosen the soil\n- [ ] water in the evening\n"
    )


@server.tool(view=View("image", alt="The plan of the garden: three beds beside each other"))
def plan() -> EmbeddedResource:
    """The plan of the garden, drawn."""
    beds = "".join(
        f'<rect x="{10 + 95 * number}" y="10" width="85" height="160" rx="8" fill="{colour}"/>'
        for number, colour in enumerate(("#d9822b", "#bf3f3f", "#4f8a3d"))
    )
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg" width="300" height="180" viewBox="0 0 300 180">{beds}</svg>'
    return embedded("garden://plan", drawing, mime_type="image/svg+xml")


@server.tool(view=View("form", submit="Place the order"), title="Order")
def order(
    article: Annotated[Literal["Carrot seeds", "Tomato seeds", "Spade"], Meta(description="What is ordered")],
    pieces: Annotated[int, Meta(ge=1, le=99, description="How many pieces")] = 1,
    ready: Annotated[date | None, Meta(description="The day it is fetched; by default tomorrow's")] = None,
    gift: bool = False,
) -> list[Order]:
    """Order an article; gives the order as it was taken."""
    found = next(each for each in ARTICLES if each.name == article)
    if pieces > found.stock:
        raise ToolError(f"pieces: only {found.stock} of {article} are left")
    total = round(found.price * pieces + (1.5 if gift else 0), 2)
    return [Order(article, pieces, total, ready or FIRST + timedelta(days=1))]


if __name__ == "__main__":
    server.run()
