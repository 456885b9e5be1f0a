"""WebSocket, one JSON-RPC message per text frame: `connection.py` is one connection at either end, over the websockets
library's sans-I/O protocol; `server.py` listens on a port of its own, `client.py` connects to a URL.
"""
