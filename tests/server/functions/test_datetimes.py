"""Dates as models write them, where the function takes a date; and where it takes text they stay as they are."""

from __future__ import annotations

import datetime
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from mcpd.errors import ArgumentsError
from mcpd.server.functions.signature import bind

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("hint", "given", "meant"),
    [
        (datetime.datetime, "2026-11-22 10:00", datetime.datetime(2026, 11, 22, 10)),
        (datetime.datetime, "2026-11-22T10:00", datetime.datetime(2026, 11, 22, 10)),
        (datetime.datetime, "2026-11-22", datetime.datetime(2026, 11, 22)),
        (datetime.datetime, " 2026-11-22 10:00 UTC", datetime.datetime(2026, 11, 22, 10, tzinfo=UTC)),
        (datetime.datetime, "2026-11-22T10:00Z", datetime.datetime(2026, 11, 22, 10, tzinfo=UTC)),
        (Annotated[datetime.datetime, Meta(tz=True)], "2026-11-22 10:00Z",
         datetime.datetime(2026, 11, 22, 10, tzinfo=UTC)),
        (datetime.date, "2026-11-22T00:00:00", datetime.date(2026, 11, 22)),
        (datetime.date, "20261122", datetime.date(2026, 11, 22)),
        (datetime.time, "10:00", datetime.time(10)),
        (datetime.time, "10:00 utc", datetime.time(10, tzinfo=UTC)),
        (datetime.timedelta, 90, datetime.timedelta(seconds=90)),
        (datetime.timedelta, 1.5, datetime.timedelta(seconds=1.5)),
        (datetime.timedelta, "1:30", datetime.timedelta(minutes=90)),
        (datetime.timedelta, "-0:00:01.5", datetime.timedelta(seconds=-1.5)),
        (datetime.timedelta, "2 days, 1:00:00", datetime.timedelta(days=2, hours=1)),
        (datetime.timedelta, "-1 day, 23:00:00", datetime.timedelta(hours=-1)),
        (datetime.timedelta, "P2W", datetime.timedelta(weeks=2)),
        (datetime.datetime | None, "2026-11-22 10:00", datetime.datetime(2026, 11, 22, 10)),
        (list[datetime.date], ["2026-11-22 00:00"], [datetime.date(2026, 11, 22)]),
        (tuple[int, datetime.time], [1, "10:00"], (1, datetime.time(10))),
        (dict[str, datetime.timedelta], {"a": 1}, {"a": datetime.timedelta(seconds=1)}),
        (str, "2026-11-22 10:00", "2026-11-22 10:00"),
        (datetime.timedelta | int, 90, 90),
    ],
)  # fmt: skip
def test_what_is_meant(hint: Any, given: Any, meant: Any) -> None:
    assert called(hint, given) == meant


@pytest.mark.parametrize(
    ("hint", "given"),
    [
        (datetime.datetime, "tomorrow"),
        (datetime.datetime, 1795341600),
        (datetime.date, "2026-11-22T10:00:00"),
        (datetime.date, "22.11.2026"),
        (datetime.time, "10"),
        (datetime.timedelta, "a while"),
        (datetime.timedelta, 1e300),
        (datetime.timedelta, True),
        (datetime.timedelta, "P1Y"),
        (Annotated[datetime.datetime, Meta(tz=True)], "2026-11-22 10:00"),
    ],
)
def test_what_could_mean_several_things_or_none(hint: Any, given: Any) -> None:
    with pytest.raises(ArgumentsError, match="^value: "):
        called(hint, given)


def called(hint: Any, given: Any) -> Any:
    def tool(value):  # type: ignore[no-untyped-def]
        return value

    tool.__annotations__ = {"value": hint}
    return bind(tool).call(msgspec.json.encode({"value": given}))
