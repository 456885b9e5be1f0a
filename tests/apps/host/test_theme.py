"""Style variables (mcp-apps-ctx-01, APP-H-16)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mcpd.apps.host.host import style_variables


def test_the_names_are_the_specifications(shared: Path) -> None:
    """mcp-apps-ctx-01: "Variables follow standardized naming"."""
    schema = json.loads((shared / "spec/apps/ext-apps-2.0.4.schema.json").read_text(encoding="utf-8"))
    official = {name["const"] for name in schema["$defs"]["McpUiStyleVariableKey"]["anyOf"]}
    assert official == set(style_variables())
    text = (shared / "spec/apps/apps-2026-01-26.mdx").read_text(encoding="utf-8")
    assert set(re.findall(r'^  \| "(--[a-z0-9-]+)"', text, re.MULTILINE)) == official


def test_colours_work_in_both_schemes_without_new_variables() -> None:
    """APP-H-16: S use `light-dark()` for theme values."""
    for name, value in style_variables().items():
        if name.startswith("--color-"):
            assert re.fullmatch(r"light-dark\([^,]+, [^,]+\)", value), name


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    brighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("role", ["primary", "secondary", "tertiary", "info", "danger", "success", "warning", "ghost"])
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read(role: str, scheme: int) -> None:
    def colour(name: str) -> str:
        return re.findall(r"#[0-9a-f]{6}", style_variables()[name])[scheme]

    assert contrast(colour(f"--color-text-{role}"), colour("--color-background-primary")) >= 4.5
    background = f"--color-background-{role}"
    if role in ("info", "danger", "success", "warning"):
        assert contrast(colour(f"--color-text-{role}"), colour(background)) >= 4.5
