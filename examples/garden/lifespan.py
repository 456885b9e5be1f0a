"""The state that the tools share: opened before the first call, closed after the last."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass
class Shared:
    """Parameters of these types are given by the server."""

    db: sqlite3.Connection


async def lifespan() -> AsyncIterator[Shared]:
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute("create table plant (bed text, name text)")
    db.executemany("insert into plant values (?, ?)", [("north", "kale"), ("south", "beans"), ("south", "mint")])
    yield Shared(db)
    db.close()
