"""Which tools are the model's and which a View's (APP-H-02, APP-H-03)."""

from __future__ import annotations

from typing import Any

import pytest
from support.host_stage import tool

from mcpd.apps.tool_metadata import is_for_app, is_for_model, model_tools, resource_uri
from mcpd.protocol.types.features import Tool

CASES: list[tuple[Any, bool, bool]] = [
    # visibility, for the model, for the app
    (None, True, True),
    (["model", "app"], True, True),
    (["app"], False, True),
    (["model"], True, False),
    (["app", "model", "app"], True, True),
    (["app", "other"], False, True),
    (["model", "other"], True, False),
    (["other"], False, False),
    ([], False, False),
    ("app", False, True),
    ("model", True, False),
    (7, False, False),
    ({"app": True}, False, False),
]


@pytest.mark.parametrize(("visibility", "model", "app"), CASES)
def test_visibility(visibility: Any, model: bool, app: bool) -> None:
    """APP-H-02: an array without "model" hides the tool, whatever else is in it; absent means both."""
    assert (is_for_model(tool("t", visibility)), is_for_app(tool("t", visibility))) == (model, app)


@pytest.mark.parametrize("meta", [None, {}, {"ui": None}, {"ui": "x"}, {"ui": {}}, {"ui": {"visibility": None}}])
def test_no_visibility_means_both(meta: dict[str, Any] | None) -> None:
    bare = Tool(name="t", input_schema={}, meta=meta)
    assert is_for_model(bare)
    assert is_for_app(bare)


def test_the_models_list() -> None:
    """APP-H-02, mcp-apps-tool-04: an app-only tool is not in what the model sees."""
    tools = [tool("a"), tool("b", ["app"]), tool("c", ["model"])]
    assert [each.name for each in model_tools(tools)] == ["a", "c"]


@pytest.mark.parametrize(
    ("meta", "uri"),
    [
        (None, None),
        ({"ui": {"resourceUri": "ui://a/b"}}, "ui://a/b"),
        ({"ui/resourceUri": "ui://old"}, "ui://old"),
        ({"ui": {"resourceUri": "ui://new"}, "ui/resourceUri": "ui://old"}, "ui://new"),
        ({"ui": {"resourceUri": "https://evil.example"}}, None),
        ({"ui": {"resourceUri": 7}}, None),
    ],
)
def test_the_resource_of_a_tool(meta: dict[str, Any] | None, uri: str | None) -> None:
    """APP-H-01: what to read; the nested key wins over the flat one."""
    assert resource_uri(Tool(name="t", input_schema={}, meta=meta)) == uri
