"""`[serve]` of mcpd.toml: flags go before the environment, that before the file; a transport that is named is alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Child
from support.folders import write
from support.wires import MODERN, process_wire

from mcpd.cli.launch import _take_file_options as take, stdio_options
from mcpd.server.settings import Options
from mcpd.sources.lookup import ServerFolder

SAID = {"http": ":8080", "grace": 9.0, "token-file": "secret", "apps": "always", "strict-model-list": True}


def taken(**given: object) -> Options:
    options = Options(**{"given": frozenset(given), **given})  # type: ignore[arg-type]
    take(options, SAID, ServerFolder("/srv/garden", "/srv/garden/mcpd.toml"))
    return options


def test_what_nobody_says_elsewhere() -> None:
    options = taken()
    assert (options.http, options.grace, options.token_file) == (":8080", 9.0, "/srv/garden/secret")
    (said,) = options.extensions.values()
    assert said == {"apps": "always", "strict_model_list": True}


def test_where_a_login_is_described() -> None:
    """In a file beside, or nowhere."""
    for said, expected in (("auth.toml", "/srv/garden/auth.toml"), ("dev", "dev")):
        options = Options()
        take(options, {"auth-server": said}, ServerFolder("/srv/garden", "/srv/garden/mcpd.toml"))
        assert options.auth_server == expected


def test_what_was_given_stays_though_it_is_the_default() -> None:
    assert taken(grace=5.0).grace == 5.0
    assert taken(stdio=True).http is None
    assert taken(ws=":1").http is None
    extension = next(iter(taken().extensions))
    options = Options(extensions={extension: {"apps": "never"}})
    take(options, SAID, ServerFolder("/x"))
    assert options.extensions[extension] == {"apps": "never", "strict_model_list": True}


def test_a_token_in_the_environment_goes_before_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPD_TOKEN", "x" * 20)
    assert taken().token_file is None


def test_what_a_line_read_without_click_gives() -> None:
    options = stdio_options(["serve", "--stdio", "folder", "--insecure", "--log-level", "info"], {})
    assert options is not None
    assert options.given == {"stdio", "insecure", "log_level"}


async def test_on_the_command_line(tmp_path: Path, child: Child) -> None:
    """A host says --stdio: no port is opened, whatever the file says; a mistake in it ends with its line."""
    root = write(tmp_path / "g", {"mcpd.toml": '[serve]\nhttp = "192.0.2.1:1"\nlog-level = "debug"\n'})
    async with process_wire(child, str(root), version=MODERN) as wire:
        await wire.said("DEBUG mcpd")
    async with process_wire(child, str(root), version=MODERN, env={"MCPD_LOG_LEVEL": "error"}) as wire:
        assert await wire.result("server/discover")
    write(root, {"mcpd.toml": '[serve]\nhttp = ":0"\ngrase = 3\n'})
    for command in ("serve", "check"):
        done = subprocess.run(
            child.mcpd(command, str(root)), env=child.env, capture_output=True, text=True, timeout=100, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.endswith("mcpd.toml, line 3: unknown key serve.grase; did you mean grace?\n")


def test_a_transport_of_the_file_is_served(tmp_path: Path, child: Child) -> None:
    root = write(tmp_path, {"mcpd.toml": 'name = "yard"\n[serve]\nws = ":0"\n'})
    process = subprocess.Popen(
        child.mcpd("serve", str(root)), env=child.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("mcpd: listening on ws://127.0.0.1:")
    finally:
        process.terminate()
        process.communicate(timeout=60)
