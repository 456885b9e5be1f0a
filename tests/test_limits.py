"""docs/reference/limits.md says what the code does: each default is read from there, and no setting is missing."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from mcpd.server.settings import command_options

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "limits.md"

# The structs whose every number is a limit, less those that are none.
STRUCTS = [
    "server.http.core.HttpSettings",
    "transports.accepting.WebSocketLimits",
    "apps.host.view.policy.ViewLimits",
    "client.limits.ClientLimits",
    "server.extensions.tasks.settings.TaskSettings",
]

UNITS = {
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "KiB/s": 1024, "MiB/s": 1024**2,
    "ms": 1, "s": 1, "min": 60, "h": 3600, "days": 86_400, "": 1,
}  # fmt: skip


class Row(NamedTuple):
    limit: str
    default: str
    setting: str
    effect: str
    place: str


def rows() -> list[Row]:
    cells = [re.split(r" \| | <!-- ", line) for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    found = [Row(*(cell.strip("|-> ") for cell in row)) for row in cells if row[0] not in ("| Limit", "| ---")]
    assert len(found) > 50
    return found


ROWS = rows()


# Defaults that are found out when it starts, or that are no limit.
WORDS = {"half of memory": None, "none": None}


def number(text: str) -> float | None:
    """A default as the page writes it: `64 MiB`, `1,024`, `0.5 s`."""
    if text in WORDS:
        return WORDS[text]
    value, _, unit = text.replace(",", "").partition(" ")
    return float(value) * UNITS[unit]


def default_of(place: str) -> Any:
    """The value of a constant, or the default of a struct's member or of a function's parameter."""
    names = place.split(".")
    for size in range(len(names), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["mcpd", *names[:size]]))
        except ModuleNotFoundError:
            continue
        rest = names[size:]
        break
    if len(rest) == 1:
        return getattr(found, rest[0])
    owner = getattr(found, rest[0])
    if issubclass(owner, msgspec.Struct):
        # The required members come first, so the defaults belong to the last ones.
        return dict(zip(reversed(owner.__struct_fields__), reversed(owner.__struct_defaults__), strict=False))[rest[1]]
    return inspect.signature(owner).parameters[rest[1]].default


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.place)
def test_the_page_says_what_the_code_does(row: Row) -> None:
    place = re.fullmatch(r"([\w.]+)", row.place)
    assert place is not None
    assert number(row.default) == default_of(place[1])


def test_each_setting_is_named_as_it_is_written() -> None:
    for row in ROWS:
        member = row.place.rpartition(".")[2]
        named = re.search(r"`(?:--)?(?:\w+\()?([\w-]+?)(?:=…\)?)?`", row.setting)
        if not row.setting.startswith(("fixed", "`ulimit", "`--log-level", "`stderr_")):
            assert named is not None, row
            if "server.settings.Options." in row.place:
                assert f"--{named[1]}" == command_options()[member][0].flag, row
            else:
                assert named[1].replace("-", "_") == member, row


@pytest.mark.parametrize("struct", STRUCTS)
def test_no_limit_is_missing(struct: str) -> None:
    module, _, name = struct.rpartition(".")
    kind = getattr(importlib.import_module(f"mcpd.{module}"), name)
    numbers = [member.name for member in msgspec.structs.fields(kind) if type(member.default) in (int, float)]
    listed = {row.place for row in ROWS}
    assert [name for name in numbers if f"{struct}.{name}" not in listed] == []
