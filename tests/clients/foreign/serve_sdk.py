"""The everything server of the official Python SDK, in its own environment: `serve_sdk.py FOLDER TRANSPORT`.

It has no option for another transport than Streamable HTTP; a WebSocket is what version 1 has beside its command line.
"""

from __future__ import annotations

import sys

sys.path.insert(0, sys.argv[1])

from mcp_everything_server import server as everything  # type: ignore[import-not-found]


def serve(transport: str) -> None:
    """Serve on a free port of this machine, which uvicorn says on stderr, or over stdio."""
    if transport == "websocket":
        _serve_websocket()
    elif hasattr(everything.mcp, "_mcp_server"):  # version 1
        everything.mcp.settings.port = 0
        everything.mcp.run(transport=transport)
    elif transport == "stdio":
        everything.mcp.run(transport=transport)
    else:
        everything.mcp.run(transport=transport, port=0)


def _serve_websocket() -> None:
    import uvicorn
    from mcp.server.websocket import websocket_server
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute
    from starlette.websockets import WebSocket

    server = everything.mcp._mcp_server

    async def talk(socket: WebSocket) -> None:
        async with websocket_server(socket.scope, socket.receive, socket.send) as streams:
            await server.run(*streams, server.create_initialization_options())

    uvicorn.run(Starlette(routes=[WebSocketRoute("/ws", talk)]), port=0)


serve(sys.argv[2])
