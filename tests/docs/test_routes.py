"""docs/routes.md: its routes answer beside the endpoint."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.documentation import page_modules

__all__ = ["page_modules"]

Pages = Callable[..., list[ModuleType]]


async def ask(server: Any, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    sent: list[Any] = []
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": [(b"host", b"localhost"), *fields]}

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await server.asgi_app()(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


async def test_orders(page_modules: Pages) -> None:
    (page,) = page_modules("routes", "server")
    assert await ask(page.server, "PUT", "/orders/8", b"5") == (201, b'{"id":"8"}')
    status, body = await ask(page.server, "GET", "/orders/8")
    assert (status, json.loads(body)) == (200, {"id": "8", "pieces": 5})
    assert await ask(page.server, "GET", "/") == (200, b"<h1>The shop</h1>")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [("GET", "/orders/9", b"", 404), ("DELETE", "/orders/8", b"", 405), ("PUT", "/orders/8", b'"many"', 400)],
)
async def test_refusals(page_modules: Pages, method: str, path: str, body: bytes, status: int) -> None:
    (page,) = page_modules("routes", "server")
    assert (await ask(page.server, method, path, body))[0] == status


async def test_the_webhook_checks_its_signature(page_modules: Pages) -> None:
    page, webhook = page_modules("routes", "server", "webhook")
    body = b'{"9": 4}'
    assert (await ask(page.server, "POST", "/webhooks/stock", body))[0] == 403
    seal = hmac.new(webhook.KEY, body, hashlib.sha256).hexdigest()
    assert (await ask(page.server, "POST", "/webhooks/stock", body, x_signature=seal))[0] == 204
    assert page.orders["9"] == 4
