"""`mcpd check` names views that cannot show what their tool gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from mcpd import ImageContent, Server, View


@dataclass
class Sale:
    """A sale."""

    month: str
    amount: float
    note: str | None = None


class Page(BaseModel):
    items: list[dict[str, int]]
    total: int


def problems(returns: Any, view: Any) -> list[str]:
    server = Server("shop")

    def tool() -> Any:
        """Gives something."""

    tool.__annotations__["return"] = returns
    server.add_tool(tool, view=view)
    return [str(problem) for problem in server.problems()]


@pytest.mark.parametrize(
    ("returns", "view"),
    [
        (list[Sale], "table"),
        (list[dict[str, Any]], "table"),
        (list[list[int]], "table"),
        (dict[str, list[float]], "chart"),
        (dict[str, Any], "chart"),
        (list[Sale] | None, "chart"),
        (Page, "table"),
        (Page, "chart"),
        (Any, "chart"),
        (list[Sale], View("chart", x="month", y=["amount"])),
        (str, "markdown"),
        (str, "form"),
        (int, "form"),
        (ImageContent, "image"),
        (str, "image"),
        (dict[str, str], "image"),
    ],
)
def test_what_fits_is_no_problem(returns: Any, view: Any) -> None:
    assert problems(returns, view) == []


@pytest.mark.parametrize(
    ("returns", "view", "told"),
    [
        (int, "table", "cannot show integer"),
        (str, "table", "cannot show str"),
        (None, "chart", "cannot show nothing"),
        (bool, "chart", "cannot show boolean"),
        (int, "markdown", "cannot show integer"),
        (list[Sale], "markdown", "cannot show this array"),
        (float, "image", "cannot show number"),
        (list[dict[str, str]], "chart", "no numbers"),
        (list[Sale], View("chart", x="month", y=["amont"]), "names the column 'amont'; results have month, amount"),
        (list[Sale], View("chart", y=["note"]), "'note', which is not a number"),
        (list[Sale], View("table", columns=["month", "total"]), "the column 'total'"),
    ],
)
def test_what_does_not_fit_is_named(returns: Any, view: Any, told: str) -> None:
    [problem] = problems(returns, view)
    assert problem.startswith("tool tool: view=")
    assert told in problem
