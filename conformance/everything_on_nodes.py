"""`everything_with_extensions.py` as several processes serve it: the lists of all have to be equal, so what the tools
add there is taken away again in the same call. Between the two the others hear of a list that is not theirs: of one
that is they would tell nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import everything
from everything_with_extensions import server

__all__ = ["server"]


def _twice(change: Callable[[], Awaitable[str]]) -> None:
    async def there_and_back() -> str:
        await change()
        for _ in range(20):  # turns of the loop in which it is said
            await asyncio.sleep(0)
        return await change()

    name = change.__name__
    server.remove_tool(name)
    server.add_tool(there_and_back, name=name, description=change.__doc__ or "")


for _change in (
    everything.test_trigger_tool_change,
    everything.test_trigger_prompt_change,
    everything.test_trigger_resource_change,
):
    _twice(_change)
