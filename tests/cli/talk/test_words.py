"""Which words name the server, and which the tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpd.cli.talk.connecting import ServerOptions, describe_error
from mcpd.cli.talk.words import WrongUse, is_argument, nearest, split_words
from mcpd.errors import ConnectionLost


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], (None, "", [])),
        (["echo", "text=hi"], (None, "echo", ["text=hi"])),
        (["a.py", "echo", "text=hi"], ("a.py", "echo", ["text=hi"])),
        (["a.py"], ("a.py", "", [])),
        (["a.py:server"], ("a.py:server", "", [])),
        (["https://x.example/mcp?a=b", "echo"], ("https://x.example/mcp?a=b", "echo", [])),
        (["claude-code:github"], ("claude-code:github", "", [])),
        (["echo", "-"], (None, "echo", ["-"])),
        (["echo", "@file", "a=1"], (None, "echo", ["@file", "a=1"])),
        (["pkg:server", "echo", "{}"], ("pkg:server", "echo", ["{}"])),
    ],
)
def test_target_tool_arguments(words: list[str], found: object) -> None:
    assert split_words(words, (), "tool") == found


def test_a_command_takes_the_place_of_target() -> None:
    assert split_words(["echo", "a=1"], ("npx", "x"), "tool") == (None, "echo", ["a=1"])
    with pytest.raises(WrongUse, match=r"the command after -- is the server, so leave out a\.py"):
        split_words(["a.py", "echo"], ("npx",), "tool")


def test_a_file_that_is_there_is_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "servers").mkdir()
    assert split_words(["servers"], (), "tool") == ("servers", "", [])


@pytest.mark.parametrize("words", [["a.py", "echo", "hello"], ["echo", "text=a", "b"]])
def test_words_too_many(words: list[str]) -> None:
    with pytest.raises(WrongUse, match="as name=value, in quotes if it contains spaces"):
        split_words(words, (), "tool")


def test_what_an_argument_is() -> None:
    assert all(map(is_argument, ["a=", "a:=1", "a.b=c", "{}", "@f", "-", "a=@f"]))
    assert not any(map(is_argument, ["a", "a b=c", "https://x/?a=b", "", "=x"]))


def test_nearest() -> None:
    assert nearest("Ecko", ["echo", "add"]) == "echo"
    assert nearest("ECHO", ["Echo"]) == "Echo"
    assert nearest("zzz", ["echo"]) == ""


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("https://u:secret@host.example/mcp?t=secret", "'https://…@host.example/mcp?…'"),
        ("https://host.example/a@b", "https://host.example/a@b"),
        ("mcp.json:github", "mcp.json:github"),
        (None, ""),
    ],
)
def test_a_target_is_said_again_without_secrets(target: str | None, shown: str) -> None:
    text = describe_error(ConnectionLost("Gone"), ServerOptions(target=target))
    assert text == f"gone; to find out why, run mcpd doctor {shown}".rstrip()


def test_a_command_is_said_again_without_secrets() -> None:
    text = describe_error(ConnectionLost("Gone"), ServerOptions(command=("server", "--api-key", "secret-1")))
    assert text == "gone; to find out why, run mcpd doctor -- server --api-key '<masked: 8 characters>'"
