"""Webhooks as a server sends them: signed bytes, through the ASGI application of a receiver."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

from mcpd.client.receiver import Receiver

__all__ = ["post", "sign"]


def sign(secret: str, message_id: str, body: bytes, at: float | None = None) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(key, f"{message_id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(mac).decode()
    return {"webhook-id": message_id, "webhook-timestamp": stamp, "webhook-signature": signature}


async def post(
    receiver: Receiver, headers: dict[str, str], body: bytes, *, method: str = "POST", size: int = 1 << 20
) -> tuple[int, Any]:
    """Send a request to the ASGI application, its body in parts of `size` bytes."""
    parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    sent: list[Any] = []

    async def receive() -> Any:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    await receiver.asgi({"type": "http", "method": method, "path": "/x", "headers": fields}, receive, send)
    assert [each["type"] for each in sent] == ["http.response.start", "http.response.body"]
    return sent[0]["status"], json.loads(sent[1]["body"])
