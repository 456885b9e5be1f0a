"""Tools: signatures, metadata, methods, errors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from mcpd import CallToolResult, Server, ToolAnnotations, ToolError, text

server = Server("Bookshop")

CATALOG = {"Dune": "Frank Herbert", "Neuromancer": "William Gibson"}


class Book(BaseModel):
    title: str
    author: str
    year: int = Field(ge=1450, description="Year of first publication.")


@dataclass
class Page:
    start: int = 0
    length: int = 10


@server.tool(title="Search the catalog", annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def search_books(
    query: Annotated[str, Field(description="Title or author to search for.")],
    limit: Annotated[int, Field(ge=1, le=50, description="Maximum number of results.")] = 10,
    genre: Literal["fiction", "non-fiction", "poetry"] | None = None,
) -> str:
    """Search the catalog by title or author."""
    where = f" in {genre}" if genre else ""
    return f"Found 3 books matching {query!r}{where} (showing up to {limit})."


@server.tool
def add_book(book: Book) -> str:
    """Add a book to the catalog."""
    return f"Added {book.title!r} by {book.author} ({book.year})."


@server.tool
def list_books(page: Page) -> list[str]:
    """A page of the catalog."""
    return list(CATALOG)[page.start : page.start + page.length]


@server.tool
def search_database(
    query: str = Field(description="Search query string"),
    limit: int = Field(10, description="Maximum number of results", ge=1, le=100),
) -> list[dict[str, Any]]:
    """Search the database with the provided query."""
    return [{"query": query, "limit": limit}]


@server.tool
def process_image(
    image_url: Annotated[str, "URL of the image to process"],
    resize: Annotated[bool, "Whether to resize the image"] = False,
    width: Annotated[int, Field(description="Target width in pixels", ge=1, le=2000)] = 800,
    format: Annotated[Literal["jpeg", "png", "webp"], Field(description="Output image format")] = "jpeg",
) -> dict[str, Any]:
    """Process an image with optional resizing."""
    return {"url": image_url, "width": width if resize else None, "format": format}


@server.tool
def analyze_text(text: str, max_tokens: int = 100, language: str | None = None) -> dict[str, Any]:
    """Analyze the provided text.

    Args:
        text: What to analyze.
        max_tokens: How much of it.
        language: Its language, if that is known.
    """
    return {"words": len(text.split()), "max_tokens": max_tokens, "language": language}


@server.tool(
    name="find_products",
    description="Search the product catalog with optional category filtering.",
    tags={"catalog", "search"},
    meta={"version": "1.2", "author": "product-team"},
)
def search_products_implementation(query: str, category: str | None = None) -> list[dict[str, Any]]:
    return [{"id": 2, "name": f"{query} ({category or 'all'})"}]


@server.tool(annotations={"title": "Delete a user", "destructiveHint": True, "idempotentHint": True})
async def delete_user(user_id: str) -> dict[str, str]:
    """Permanently delete a user account."""
    return {"deleted": user_id}


class Calculator:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def multiply(self, x: int) -> int:
        """Multiply x by the factor of this instance."""
        return x * self.factor


server.add_tool(Calculator(3).multiply)

# Four ways to report an error.


@server.tool
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    if b == 0:
        raise ToolError("Division by zero is not allowed.")
    return a / b


@server.tool
def get_author(title: str) -> str:
    """Look up the author of a book in the catalog."""
    if title not in CATALOG:
        raise ToolError(f"No book titled {title!r} in the catalog.")
    return CATALOG[title]


@server.tool
def read_config(path: str) -> str:
    """Read a configuration file."""
    return Path(path).read_text(encoding="utf-8")


@server.tool
def validate_input(data: str) -> CallToolResult:
    """Validate input data."""
    if len(data) < 3:
        return CallToolResult(content=[text("Input must be at least 3 characters")], is_error=True)
    return CallToolResult(content=[text("Validation passed")])


if __name__ == "__main__":
    server.run(stdio=True)
