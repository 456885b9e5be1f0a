"""A WebSocket server that does next to nothing: what is left of a call's time is its client's, and the system's.

    python tests/bench/bare_server.py

Prints its URL. One thread reads one connection by blocking calls, knows `initialize` and `tools/list`, and answers each
call with the same result. It is no server to learn from: it takes only what the clients of
`client_streams.py` send, messages of one frame below 64 KiB.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading

from interleaved import TEXT

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_ECHO = {"content": [{"type": "text", "text": TEXT}], "isError": False}
_ANSWER = json.dumps({"jsonrpc": "2.0", "id": "#", "result": _ECHO}).encode()


def main() -> None:
    """Serve until the process is ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"ws://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    with connection:
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65536)
        head, _, received = received.partition(b"\r\n\r\n")
        connection.sendall(_accepting(head))
        while True:
            while (end := _end_of_frame(received)) > len(received):
                data = connection.recv(65536)
                if not data:
                    return
                received += data
            frame, received = received[:end], received[end:]
            if frame[0] & 0x0F == 8:
                connection.sendall(b"\x88\x02\x03\xe8")
                return
            if frame[0] & 0x0F == 1 and (answer := _answer(_unmasked(frame))):
                connection.sendall(_frame(answer))


def _accepting(head: bytes) -> bytes:
    lines = (line.partition(b": ") for line in head.split(b"\r\n")[1:])
    fields = {name.lower(): value for name, _, value in lines}
    accept = base64.b64encode(hashlib.sha1(fields[b"sec-websocket-key"] + _GUID).digest())
    answer = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
    answer.append(b"Sec-WebSocket-Accept: " + accept)
    if b"sec-websocket-protocol" in fields:
        answer.append(b"Sec-WebSocket-Protocol: mcp")
    return b"\r\n".join([*answer, b"", b""])


def _end_of_frame(received: bytes) -> int:
    """Where the first frame ends, if so much is there to tell; else beyond what is there."""
    if len(received) < 4:
        return len(received) + 1
    size = received[1] & 0x7F
    return 6 + size if size < 126 else 8 + int.from_bytes(received[2:4], "big")


def _unmasked(frame: bytes) -> bytes:
    start = 2 if frame[1] & 0x7F < 126 else 4
    mask, payload = frame[start : start + 4], frame[start + 4 :]
    size = len(payload)
    masks = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(masks, "big")).to_bytes(size, "big")


def _answer(message: bytes) -> bytes | None:
    asked = json.loads(message)
    if "id" not in asked:
        return None
    if asked["method"] == "tools/call":
        return _ANSWER.replace(b'"#"', json.dumps(asked["id"]).encode())
    result: dict[str, object] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "bare", "version": "1"},
    }
    if asked["method"] == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()


def _frame(message: bytes) -> bytes:
    size = len(message)
    return (bytes([0x81, size]) if size < 126 else bytes([0x81, 126]) + size.to_bytes(2, "big")) + message


if __name__ == "__main__":
    main()
