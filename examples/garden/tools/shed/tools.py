"""In a sub-folder: the tool is called shed_borrow. `mcpd.tool` says what a function cannot."""

from __future__ import annotations

from typing import Literal

import mcpd


@mcpd.tool(title="Borrow a tool", annotations={"readOnlyHint": False, "destructiveHint": False})
async def borrow(what: Literal["spade", "rake", "hose"]) -> str:
    """Borrow a tool from the shed."""
    return f"Here is the {what}"
