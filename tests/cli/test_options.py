"""Every option of every command can be set in the environment, and its help says how (architecture.md 5)."""

from __future__ import annotations

import click
import pytest

from mcpd.cli.check import command as check
from mcpd.cli.serve import command as serve
from mcpd.cli.serve_options import Options

COMMANDS = {"check": check, "serve": serve}


def options_of(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_variable_and_a_help_text(name: str) -> None:
    options = options_of(COMMANDS[name])
    assert options
    for option in options:
        assert option.envvar == f"MCPD_{option.opts[0].removeprefix('--').replace('-', '_').upper()}"
        assert option.show_envvar
        assert option.help


def test_options_are_those_that_launch_takes() -> None:
    assert {parameter.name for parameter in serve.params} == set(Options.__struct_fields__)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPD_WS", ":1234")
    monkeypatch.setenv("MCPD_ALLOW_HOST", "a.example b.example")
    monkeypatch.setenv("MCPD_GRACE", "0.5")
    monkeypatch.setenv("MCPD_INSECURE", "1")
    with serve.make_context("serve", ["server.py"]) as context:
        read = Options(**context.params)
    assert read == Options(
        target="server.py", ws=":1234", allow_host=("a.example", "b.example"), grace=0.5, insecure=True
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_words_may_be_written_in_any_case(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As log levels are elsewhere."""
    monkeypatch.setenv("MCPD_LOG_LEVEL", "WARNING")
    with COMMANDS[name].make_context(name, ["server.py"]) as context:
        assert context.params["log_level"] == "warning"
