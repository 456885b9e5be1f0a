"""Names of `_meta` keys: S25-018, S25-019, S26-027, S26-028, and S26-040 for extensions."""

from __future__ import annotations

import pytest

from mcpd import Server
from mcpd.errors import RegistrationError
from mcpd.server.extensions.ui.constants import UI
from mcpd.server.metadata import is_meta_key, meta_of


@pytest.mark.parametrize(
    "key",
    [
        "unit", "a", "A9", "a-b", "a_b", "a.b", "com.example/unit", "com.example/", "c/u", "x-y.z9/n", "ui/resourceUri",
        "progressToken", "io.modelcontextprotocol/ui", "",
    ],
)  # fmt: skip
def test_valid_keys(key: str) -> None:
    assert is_meta_key(key)
    assert meta_of({key: 1}, "tool x") == {key: 1}


@pytest.mark.parametrize(
    "key",
    [
        "/name", "com..example/x", ".com/x", "com./x", "9com/x", "com.9example/x", "-com/x", "com-/x", "com.example-/x",
        "a b", "com.example/a/b", "-a", "a-", "_a", "a_", ".a", "a.", "com.example/-a", "com.example/a-", "é", "a\n",
        "com_x/a",
    ],
)  # fmt: skip
def test_invalid_keys(key: str) -> None:
    assert not is_meta_key(key)
    with pytest.raises(RegistrationError, match="tool x, meta: the key"):
        meta_of({"fine": 1, key: 1}, "tool x")


def test_whatever_is_registered_is_checked() -> None:
    server = Server("t")

    def nothing() -> str:
        return ""

    for register in (
        lambda: server.add_tool(nothing, meta={"a b": 1}),
        lambda: server.add_prompt(nothing, meta={"a b": 1}),
        lambda: server.resource("test://r", meta={"a b": 1})(nothing),
        lambda: server.resource("test://r/{x}", meta={"a b": 1})(lambda x: x),
    ):
        with pytest.raises(RegistrationError, match="a b"):
            register()


def test_extensions_have_a_prefix() -> None:
    """S26-040."""
    assert is_meta_key(UI)
    assert "/" in UI


def test_none_is_none() -> None:
    assert meta_of(None, "tool x") is None
