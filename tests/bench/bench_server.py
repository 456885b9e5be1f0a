"""The server that the benchmarks measure: what `../shared/bench/servers/common.py` describes, written as a user would.

Run as `mcpd serve --stdio bench_server.py`; BENCH_TOOLS is the number of tools in all.
"""

import os
import sys

from mcpd import Server, text as text_block
from mcpd.protocol.types.features import CallToolResult

sys.path.insert(0, os.environ["BENCH_COMMON"])
from common import N_EXTRA, SIZES, make_extra, text

server = Server("bench", version="1")


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def add(a: int, b: int) -> CallToolResult:
    """Add two integers."""
    # The harness wants this shape from every server and in every version: the number as text, an object as data.
    return CallToolResult(content=[text_block(str(a + b))], structured_content={"result": a + b})


@server.tool
def echo_sync(text: str) -> str:
    """Return the text."""
    return text


for number in range(N_EXTRA):
    server.tool(make_extra(number))

for size in SIZES:

    @server.resource(f"bench://text/{size}", name=size, mime_type="text/plain")
    async def read(*, size: str = size) -> str:
        return text(size)
