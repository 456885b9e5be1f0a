"""The short way of reading `serve --stdio` against click's: where both read a line, they read the same."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mcpd.cli import launch
from mcpd.cli.commands.serve import options_of, serve_command as command
from mcpd.server.extensions.serving import serve_options
from mcpd.server.settings import Options, command_options

WORDS = [
    "serve", "--stdio", "--log-level", "--log-level=debug", "--ws", ":8080", "server.py", "a.py:server", "package:make",
    "-h", "--help", "--", "-", "", "--stdi", "never", "check", "WARNING", "5",
    *(word for option, _ in command_options().values() for word in (option.flag, *option.choices)),
    *(word for each in serve_options() for word in (each.option.flag, *each.option.choices)),
]  # fmt: skip


def by_click(words: list[str]) -> Options:
    with command.make_context("serve", words) as context:
        return options_of(context)


@given(st.lists(st.sampled_from(WORDS), max_size=6))
def test_it_reads_what_click_reads_or_nothing(words: list[str]) -> None:
    read = launch.stdio_options(["serve", *words], {})
    if read is not None:
        assert read == by_click(words)


@pytest.mark.parametrize(
    "words",
    [
        ["--stdio"],
        ["--stdio", "server.py"],
        ["server.py", "--stdio"],
        ["--log-level", "warning", "--stdio", "server.py:make"],
        ["--stdio", "--apps", "never", "--strict-model-list", "server.py"],
    ],
)
def test_what_hosts_start_is_read_without_click(words: list[str]) -> None:
    read = launch.stdio_options(["serve", *words], {"MCPD_TOKEN": "t", "PATH": "/bin"})
    assert read == by_click(words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["serve"],
        ["check", "--stdio"],
        ["serve", "server.py"],
        ["serve", "--stdio", "--help"],
        ["serve", "--stdio", "--ws", ":1"],
        ["serve", "--stdio", "a.py", ""],
        ["serve", "--stdio", "--log-level"],
        ["serve", "--stdio", "--log-level", "loud"],
        ["serve", "--stdio", "--log-level=debug"],
        ["serve", "--stdio", "--grace", "5"],
        ["serve", "--stdio", ""],
        ["serve", "server.py", "--", "--stdio"],
        ["--stdio", "serve"],
    ],
)
def test_all_else_is_left_to_click(words: list[str]) -> None:
    assert launch.stdio_options(words, {}) is None


@pytest.mark.parametrize("name", ["MCPD_WS", "MCPD_APPS", "MCPD_LOG_LEVEL", "MCPD_GRACE", "MCPD_SOMETHING"])
def test_settings_in_the_environment_are_left_to_click(name: str) -> None:
    assert launch.stdio_options(["serve", "--stdio"], {name: "x"}) is None


def test_the_defaults_are_the_same() -> None:
    assert by_click([]) == Options()
