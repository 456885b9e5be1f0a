"""Tools: functions with types. `db` is what lifespan.py opened."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass
class Bed:
    name: str
    plants: list[str]


def list_beds(db: sqlite3.Connection) -> list[Bed]:
    """List the beds, and what grows in each."""
    beds: dict[str, list[str]] = {}
    for bed, plant in db.execute("select bed, name from plant order by bed, name"):
        beds.setdefault(bed, []).append(plant)
    return [Bed(name, plants) for name, plants in beds.items()]


def plant(bed: str, name: str, db: sqlite3.Connection) -> str:
    """Plant something.

    Args:
        bed: Where; a new name makes a new bed.
        name: What.
    """
    db.execute("insert into plant values (?, ?)", [bed, name])
    return f"{name} grows in the {bed} bed"
