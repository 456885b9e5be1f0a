"""Resources and resource templates."""

import base64
import json
from typing import Any

from mcpd import BlobResourceContents, Context, ReadResourceResult, ResourceNotFound, Server, TextResourceContents

server = Server("Bookshop")

BOOKS = {
    "978-0441172719": {"title": "Dune", "author": "Frank Herbert"},
    "978-0553293357": {"title": "Foundation", "author": "Isaac Asimov"},
}
MANUALS = {"printing/setup.md": "# Printer setup", "returns.md": "# Returns policy"}


@server.resource("config://app")
def get_config() -> str:
    """The active shop configuration."""
    return "theme=dark\nlanguage=en"


@server.resource("docs://readme", mime_type="text/markdown")
def readme() -> str:
    """How to use this server."""
    return "# Bookshop\n\nSearch the catalog with the `search_books` tool."


@server.resource("stats://catalog", mime_type="application/json")
def catalog_stats() -> dict[str, int]:
    """Live counts for the catalog."""
    return {"books": 1204, "authors": 391}


@server.resource("covers://placeholder", mime_type="image/gif")
def placeholder_cover() -> bytes:
    """A transparent GIF, shown when a book has no cover."""
    return base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")


@server.resource(
    "data://app-status",
    name="ApplicationStatus",
    description="Provides the current status of the application.",
    mime_type="application/json",
    tags={"monitoring", "status"},
    meta={"version": "2.1", "team": "infrastructure"},
)
async def get_application_status(ctx: Context) -> str:
    return json.dumps({"status": "ok", "request": str(ctx.request_id)})


@server.resource("data://users")
def get_users() -> ReadResourceResult:
    """A resource with several parts."""
    return ReadResourceResult(
        contents=[
            TextResourceContents("data://users", '[{"id": 1}]', "application/json"),
            BlobResourceContents("data://users", b"\x00\x01", "application/octet-stream"),
        ]
    )


server.add_text("resource://notice", "System maintenance scheduled for Sunday.", name="Important notice")

# Templates: the variables are the arguments of the function, converted to its types.


@server.resource("users://{user_id}/profile")
def get_user_profile(user_id: str) -> str:
    """A customer's profile."""
    return f"User {user_id}: 12 orders since 2021."


@server.resource("books://{isbn}")
def get_book(isbn: str) -> dict[str, str]:
    """A single book by ISBN."""
    if isbn not in BOOKS:
        raise ResourceNotFound(f"books://{isbn}")
    return BOOKS[isbn]


@server.resource("orders://{order_id}")
def get_order(order_id: int) -> dict[str, Any]:
    """An order by its numeric id."""
    return {"order_id": order_id, "next_order": order_id + 1, "status": "shipped"}


@server.resource("manuals://{+path}")
def read_manual(path: str) -> str:
    """A staff manual page. The path keeps its slashes, and cannot lead out of its folder."""
    return MANUALS[path]


@server.resource("reviews://{isbn}{?limit,sort}")
def list_reviews(isbn: str, limit: int = 10, sort: str = "newest") -> str:
    """Reviews of a book, optionally limited and sorted."""
    return f"{limit} {sort} reviews of {BOOKS[isbn]['title']}"


@server.resource("shelves://browse{/section,shelf}")
def browse_shelf(section: str = "all", shelf: str = "all") -> str:
    """A shelf in the category tree, addressed by segments."""
    return f"catalog > {section} > {shelf}"


@server.resource("imports://preview/{+source}", unsafe_paths=True)
def preview_import(source: str) -> str:
    """Preview a catalog import. The source may be an absolute path."""
    return f"Would import from {source}"


def lookup_user(name: str | None = None, email: str | None = None) -> dict[str, str | None]:
    """Look up a user by either name or email."""
    return {"name": name, "email": email}


server.resource("users://email/{email}", name="user by email")(lookup_user)
server.resource("users://name/{name}", name="user by name")(lookup_user)


if __name__ == "__main__":
    server.run(stdio=True)
