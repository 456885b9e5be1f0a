"""A server that opens something once for all calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mcpd import Context, Server


@dataclass
class Shop:
    name: str


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[Shop]:
    yield Shop(server.name)


server = Server("shop", lifespan=lifespan)


@server.tool
def name(ctx: Context) -> str:
    shop: Shop = ctx.lifespan
    return shop.name


async def embed() -> None:
    await server.open()
    await server.aclose()
