"""URIs of templates of other libraries, cut into values: as there, and in one pass."""

from __future__ import annotations

from typing import Any

import pytest


def three(a: str, b: str, c: str) -> str:
    return a + b + c


def template_of(library: str, text: str) -> Any:
    pytest.importorskip("pydantic")
    from mcpd.compat.fastmcp.components import ResourceTemplate
    from mcpd.compat.sdk.components import ResourceTemplate as FirstTemplate

    kind: Any = ResourceTemplate if library == "fastmcp" else FirstTemplate
    return kind.from_function(three, text, name="three")


@pytest.mark.parametrize("library", ["mcp", "fastmcp"])
def test_values_in_one_segment(library: str) -> None:
    template = template_of(library, "day://{a}-{b}-{c}/x")
    assert template.matches("day://1-2-3-4/x") == {"a": "1-2", "b": "3", "c": "4"}
    assert template.matches("day://1-2/3-4/x") is None
    assert template.matches("day://1-2-/x") is None
    assert template.matches("day://" + "-" * 60_000) is None  # in n³ steps this would never end


def test_values_of_several_segments() -> None:
    template = template_of("fastmcp", "day://{a*}/{b}-{c}")
    assert template.matches("day://1/2/3-4") == {"a": "1/2", "b": "3", "c": "4"}
    assert template.matches("day://1/2/34") is None
