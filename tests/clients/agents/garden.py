"""A server for agents: one tool that gives a value, one that fails, and names and types of every kind."""

from typing import Literal

from mcpd import Server, ToolError

server = Server("garden")


@server.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool(name="water-bed")
def water(bed: Literal["north", "south"], litres: float | None = None) -> dict[str, float | str]:
    """Water a bed.

    Args:
        bed: Which one.
        litres: How much of it.
    """
    if bed == "south":
        raise ToolError("the south bed is under water")
    return {"bed": bed, "litres": litres or 1.0}
