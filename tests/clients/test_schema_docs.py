"""docs/reference/schemas.md says what is so: each row of its tables is tried."""

from __future__ import annotations

import datetime
import html
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from msgspec import Meta

from mcpd.server.functions.signature import bind

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PAGE = (DOCS / "reference" / "schemas.md").read_text(encoding="utf-8")
NAMES = {
    "Any": Any,
    "Decimal": Decimal,
    "Literal": Literal,
    "UUID": UUID,
    "date": datetime.date,
    "datetime": datetime.datetime,
    "pathlib": __import__("pathlib"),
    "time": datetime.time,
    "timedelta": datetime.timedelta,
}


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    lines = PAGE.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]
    found = [[_as_markdown(cell.strip()) for cell in line.split("|")[1:-1]] for line in lines]
    assert found
    return found


def _as_markdown(cell: str) -> str:
    """A cell whose code has a bar is HTML."""
    return html.unescape(re.sub("</?code>", "`", cell))


def in_code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


TYPES = [
    (hint, in_code(taken)[0], given)
    for hints, taken, given in rows("| Python |")
    for hint in in_code(hints)
]  # fmt: skip


def bound(hint: Any) -> Any:
    def tool(value):  # type: ignore[no-untyped-def]
        return value

    tool.__annotations__ = {"value": hint, "return": dict[str, hint]}
    return bind(tool)


@pytest.mark.parametrize(("hint", "taken", "given"), TYPES)
def test_each_type(hint: str, taken: str, given: str) -> None:
    callee = bound(eval(hint, dict(NAMES)))
    assert callee.input_schema["properties"]["value"] == json.loads(taken)
    if given != "none":
        expected = json.loads(in_code(given)[0] if given else taken)
        assert callee.output_schema["additionalProperties"] == expected


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (hint, text)
        for kinds, texts in rows("| For |")
        for hint in in_code(kinds)
        if hint in NAMES
        for text in in_code(texts)
    ],
)
def test_each_date_that_is_accepted(hint: str, text: str) -> None:
    kind: Any = NAMES[hint]
    (value,) = [bound(kind).call(json.dumps({"value": text}).encode())]
    assert type(value) is kind


def test_an_offset_that_is_asked_for_is_promised() -> None:
    callee = bound(Annotated[datetime.datetime, Meta(tz=True)])
    assert callee.output_schema["additionalProperties"] == {"type": "string", "format": "date-time"}


def test_any_result_has_no_schema() -> None:
    def tool() -> Any: ...

    assert bind(tool).output_schema is None
