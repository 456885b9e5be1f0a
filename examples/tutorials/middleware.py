"""Middleware: functions around every request."""

import logging
import time
from collections import Counter

from mcpd import CallNext, MiddlewareRequest, Result, Server, ToolError

server = Server("Bookshop")

logger = logging.getLogger(__name__)
seen: Counter[str] = Counter()


@server.middleware
async def log_timing(request: MiddlewareRequest, call_next: CallNext) -> Result:
    start = time.perf_counter()
    try:
        return await call_next(request)
    finally:
        logger.info("%s took %.1f ms", request.method, (time.perf_counter() - start) * 1000)


@server.middleware
async def count_calls(request: MiddlewareRequest, call_next: CallNext) -> Result:
    if request.method == "tools/call":
        seen[request.params.name] += 1
        if request.params.name == "forbidden":
            raise ToolError("Not today.")
    return await call_next(request)


@server.tool
def search_books(query: str) -> str:
    """Search the catalog by title or author."""
    return f"Found 3 books matching {query!r}."


@server.tool
def forbidden() -> str:
    """Is always refused by the middleware."""
    return "called"


if __name__ == "__main__":
    server.run(stdio=True)
