"""Dates, times and durations as models write them, made into what RFC 3339 and ISO 8601 have.

`2026-11-22 10:00`, `10:00`, `1:30:00`, a number of seconds: what can only mean one thing. Never raises.
"""

from __future__ import annotations

import datetime
import re
from typing import Any, Final

import msgspec

DATETIME_FORMATS: Final = {
    "python datetime": "date-time",
    "python date": "date",
    "python time": "time",
    "python timedelta": "duration",
}
"""Formats that stand for a type of Python in schemas that are not plain yet, and what they are in plain ones."""

# No date is longer, and what comes next would take seconds for megabytes.
_LONGEST: Final = 100

_UTC: Final = r"(?i) ?(?:utc|gmt|z)\Z"
_CLOCK: Final = r"(-?)(?:(\d{1,6}) days?,? )?(\d{1,4}):([0-5]\d)(?::([0-5]\d(?:\.\d{1,6})?))?\Z"


def reread(value: Any, kind: str) -> Any:
    """A string or number as `kind`, one of DATETIME_FORMATS, is written in JSON; unchanged if it is none."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return value
    try:
        found = _MAKERS[kind](value)
    except (ValueError, OverflowError):
        return value
    return value if found is None else msgspec.to_builtins(found)


def _datetime(value: Any) -> datetime.datetime | None:
    if not isinstance(value, str):
        return None
    return datetime.datetime.fromisoformat(re.sub(_UTC, "+00:00", value.strip()))


def _date(value: Any) -> datetime.date | None:
    found = _datetime(value)
    # With a time of day it would be more than was asked for.
    return found.date() if found is not None and found.time() == datetime.time() else None


def _time(value: Any) -> datetime.time | None:
    if not isinstance(value, str) or ":" not in value:
        return None
    return datetime.time.fromisoformat(re.sub(_UTC, "+00:00", value.strip()))


def _timedelta(value: Any) -> datetime.timedelta | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return datetime.timedelta(seconds=value)

    if not isinstance(value, str):
        return None
    if weeks := re.match(r"(-?)P(\d{1,6})W\Z", value.strip()):
        return datetime.timedelta(weeks=int(weeks[1] + weeks[2]))

    clock = re.match(_CLOCK, value.strip())
    if clock is None:
        return None

    sign, days, hours, minutes, seconds = clock.groups()
    found = datetime.timedelta(int(days or 0), float(seconds or 0), minutes=int(minutes), hours=int(hours))
    # str() of a negative timedelta writes the sign of the days alone: -1 day, 23:00:00 is an hour less than nothing.
    if sign and days:
        return found - 2 * datetime.timedelta(int(days))
    return -found if sign else found


_MAKERS: Final = {
    "python datetime": _datetime,
    "python date": _date,
    "python time": _time,
    "python timedelta": _timedelta,
}
