"""Every option of `mcpd serve` can be set in the environment, and its help says how; those of other commands cannot."""

from __future__ import annotations

import re
from socket import socket
from typing import get_type_hints

import click
import pytest
from click.testing import CliRunner

from mcpd.cli.commands.check import check_command as check
from mcpd.cli.commands.serve import options_of as read_options, serve_command as serve
from mcpd.cli.commands.status import status_command, stop_command
from mcpd.protocol.channel import Listener, Overseer
from mcpd.protocol.session import MAX_FRAME_BYTES
from mcpd.server.extensions.serving import serve_options
from mcpd.server.functions import threads
from mcpd.server.http.core import HttpSettings
from mcpd.server.options import RunOptions
from mcpd.server.settings import SECTIONS, Options, Settings, command_options
from mcpd.transports.authentication import Protection
from mcpd.transports.websocket.server import WebSocketLimits

COMMANDS = {"check": check, "serve": serve}


def options_of(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option)]


def test_every_option_has_a_variable_and_a_help_text() -> None:
    for option in options_of(serve):
        assert option.envvar == f"MCPD_{option.opts[0].removeprefix('--').replace('-', '_').upper()}"
        assert option.show_envvar
        assert option.help


@pytest.mark.parametrize("command", [check, status_command, stop_command], ids=["check", "status", "stop"])
def test_other_commands_read_only_variables_of_the_server(command: click.Command) -> None:
    """A variable such as MCPD_WRITE or MCPD_ALL must not change files, or stop servers, that nobody named."""
    known = {option.environment for option, _ in command_options().values()}
    assert {option.envvar for option in options_of(command)} <= {None, *known}
    assert not {"MCPD_WRITE", "MCPD_ALL"} & known


def test_the_command_takes_what_the_table_says() -> None:
    """Each option by its own flag, and the argument; what else `Settings` has is for programs, or for extensions."""
    table = {name: option.flag for name, (option, _) in command_options().items()}
    of_extensions = {each.name: each.option.flag for each in serve_options()}
    assert of_extensions
    assert not set(of_extensions) & set(Options.__struct_fields__)
    table |= of_extensions
    assert {option.name: option.opts[0] for option in options_of(serve)} == table
    assert {parameter.name for parameter in serve.params} == {*table, "target"}
    assert set(table) - set(of_extensions) < set(Options.__struct_fields__)
    only_in_programs = set(Settings.__struct_fields__) - set(table)
    assert only_in_programs == {
        "announce", "auth", "descriptors", "extensions", "http_settings", "listeners", "after_start", "on_state",
        "overseer", "sockets", "thread_timeout", "token", "ws_limits",
    }  # fmt: skip


def help_of(*words: str) -> str:
    done = CliRunner().invoke(serve, words)
    assert done.exit_code == 0
    return done.stdout


def test_the_whole_help_shows_every_option_in_its_section() -> None:
    text = help_of("--help-all")
    declared = [option for option, _ in command_options().values()] + [each.option for each in serve_options()]
    sections = {*SECTIONS, *(option.section for option in declared)}
    for option in declared:
        before = text[: text.index(f"  {option.flag}")]
        assert max(sections, key=lambda section: before.rfind(f"\n{section}:\n")) == option.section
        assert option.environment in text
    assert "\nOptions:" not in text


def test_the_help_shows_the_common_options() -> None:
    text = help_of("--help")
    shown = re.findall(r"^  (?:-h, )?(--[\w-]+)", text, re.MULTILINE)
    common = [option.flag for option, _ in command_options().values() if option.is_common]
    assert len(common) == 15
    assert sorted(shown) == sorted([*common, "--help", "--help-all"])


def test_the_help_shows_defaults_with_their_units() -> None:
    text = " ".join(help_of("--help-all").split())
    for flag, default in [
        ("--session-timeout SECONDS", "30 min"),
        ("--grace SECONDS", "5 s"),
        ("--max-message-bytes SIZE", "64 MiB"),
        ("--max-threads NUMBER", "96"),
        ("--path PATH", "/mcp"),
    ]:
        assert f"Default: {default}. [env var:" in text[text.index(flag) :][:300], flag


def test_what_run_takes_is_the_same_for_people_and_for_type_checkers() -> None:
    """`Server.run` names three of the settings itself; the TypedDict has all others, with their types."""
    told = get_type_hints(RunOptions)
    # What the types of other packages are, only a type checker reads out of the module itself.
    hints = get_type_hints(
        Settings,
        localns={
            "HttpSettings": HttpSettings,
            "Listener": Listener,
            "Overseer": Overseer,
            "Protection": Protection,
            "socket": socket,
            "WebSocketLimits": WebSocketLimits,
        },
    )
    of_settings = {name: hint for name, hint in hints.items() if name not in {"stdio", "ws", "http"}}
    assert told == of_settings | {each.name: each.kind for each in serve_options()}


def test_defaults_are_told_once() -> None:
    assert Options().max_frame_bytes == MAX_FRAME_BYTES
    assert Options().session_timeout == HttpSettings().session_idle_timeout
    assert Options().max_threads == threads.MAX_THREADS


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPD_WS", ":1234")
    monkeypatch.setenv("MCPD_ALLOW_HOST", "a.example, b.example,c.example d.example")
    monkeypatch.setenv("MCPD_GRACE", "0.5")
    monkeypatch.setenv("MCPD_INSECURE", "1")
    with serve.make_context("serve", ["server.py"]) as context:
        read = read_options(context)
    assert read == Options(
        target="server.py",
        ws=":1234",
        allowed_hosts=("a.example", "b.example", "c.example", "d.example"),
        grace=0.5,
        insecure=True,
        given=frozenset(("ws", "allowed_hosts", "grace", "insecure")),
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_words_may_be_written_in_any_case(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As log levels are elsewhere."""
    monkeypatch.setenv("MCPD_LOG_LEVEL", "WARNING")
    with COMMANDS[name].make_context(name, ["server.py"]) as context:
        assert context.params["log_level"] == "warning"
