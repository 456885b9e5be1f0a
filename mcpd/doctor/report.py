"""What was found: a list of steps, each told as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

Status: TypeAlias = Literal["ok", "warning", "problem", "skipped"]
"""`warning`: works, but not everywhere, or not as well as it could. `problem`: does not work."""


class Step(Struct, frozen=True, kw_only=True):
    """One thing that was tried."""

    name: str
    """In a word or two, the same for every server."""
    status: Status
    text: str
    """What was found."""
    advice: str = ""
    """What to do about it."""
    seconds: float | None = None
    """How long it took, where that says something."""
    details: dict[str, Any] = field(default_factory=dict)
    """The same for programs."""


class Report:
    """The steps so far. `tell` is called with each."""

    def __init__(self, tell: Callable[[Step], None] = lambda step: None) -> None:
        self.steps: list[Step] = []
        self._tell = tell

    @property
    def works(self) -> bool:
        """Whether nothing was found that does not work."""
        return not any(step.status == "problem" for step in self.steps)

    def ok(self, name: str, text: str, *, seconds: float | None = None, advice: str = "", **details: Any) -> None:
        """This works; `advice` is worth knowing all the same."""
        self._add("ok", name, text, advice, seconds, details)

    def warn(self, name: str, text: str, advice: str, *, seconds: float | None = None, **details: Any) -> None:
        """This works, but not everywhere."""
        self._add("warning", name, text, advice, seconds, details)

    def fail(self, name: str, text: str, advice: str, *, seconds: float | None = None, **details: Any) -> None:
        """This does not work."""
        self._add("problem", name, text, advice, seconds, details)

    def skip(self, name: str, text: str) -> None:
        """This was not tried, and why."""
        self._add("skipped", name, text, "", None, {})

    def _add(
        self, status: Status, name: str, text: str, advice: str, seconds: float | None, details: dict[str, Any]
    ) -> None:
        shown = None if seconds is None else round(seconds, 4)
        step = Step(name=name, status=status, text=text, advice=advice, seconds=shown, details=details)
        self.steps.append(step)
        self._tell(step)
