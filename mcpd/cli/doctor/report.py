"""The steps that a doctor has taken, each with its outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

# `warning`: it works, but not everywhere, or not as well as it could. `problem`: it does not work.
Status: TypeAlias = Literal["ok", "warning", "problem", "skipped"]


class Step(Struct, frozen=True, kw_only=True):
    """The outcome of one check."""

    # One or two words, the same for every server.
    name: str
    status: Status
    # The result of the check, in words.
    text: str
    # What to do about it; may be empty.
    advice: str = ""
    # How long it took, if that matters.
    seconds: float | None = None
    # The findings for programs.
    details: dict[str, Any] = field(default_factory=dict)


class Report:
    """The steps so far. `tell` is called with each step as soon as it is done."""

    def __init__(self, tell: Callable[[Step], None] = lambda step: None) -> None:
        self.steps: list[Step] = []
        self._tell = tell

    @property
    def works(self) -> bool:
        """Whether no step is a problem."""
        return not any(step.status == "problem" for step in self.steps)

    def ok(self, name: str, text: str, *, seconds: float | None = None, advice: str = "", **details: Any) -> None:
        """Add a step that works. Even then there may be `advice`."""
        self._add("ok", name, text, advice, seconds, details)

    def warn(self, name: str, text: str, advice: str, *, seconds: float | None = None, **details: Any) -> None:
        """Add a step that works, but not everywhere."""
        self._add("warning", name, text, advice, seconds, details)

    def fail(self, name: str, text: str, advice: str, **details: Any) -> None:
        """Add a step that does not work."""
        self._add("problem", name, text, advice, None, details)

    def skip(self, name: str, text: str) -> None:
        """Add a step that was not tried, with the reason."""
        self._add("skipped", name, text, "", None, {})

    def _add(
        self, status: Status, name: str, text: str, advice: str, seconds: float | None, details: dict[str, Any]
    ) -> None:
        shown = None if seconds is None else round(seconds, 4)
        step = Step(name=name, status=status, text=text, advice=advice, seconds=shown, details=details)
        self.steps.append(step)
        self._tell(step)
