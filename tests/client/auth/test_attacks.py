"""What attackers tried on a client: other programs of this machine, documents that lead inside, pages for codes."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from mcpd import AuthorizationFailed, OAuth
from mcpd.auth.fetch import Response
from mcpd.cli.commands.login import _show_logins as show_logins
from mcpd.cli.talk.connecting import ServerOptions
from mcpd.cli.talk.terminal import Terminal
from mcpd.client.auth.flow import login
from mcpd.client.auth.steps import HttpStep, Loopback, ShowCode
from mcpd.client.auth.store import FileStore, Login, LoginRecords
from mcpd.client.auth.tokens import request_tokens
from mcpd.errors import ConfigurationError
from mcpd.transports.challenge import Challenge

URL = "https://tools.example/mcp"
ISSUER = "https://as.example"


async def test_no_other_program_is_called_back() -> None:
    """AUTH-192: who listens where `localhost` leads as well would get the code."""
    try:
        other = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with other:
        listener = Loopback(f"http://localhost:{other.getsockname()[1]}/callback")
        assert not await listener.start()
        await listener.aclose()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name are of POSIX")
def test_a_pipe_in_the_place_of_the_store(tmp_path: Path) -> None:
    """H27 (AUTH-214): it is not waited for."""
    path = tmp_path / "auth.json"
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigurationError, match="is not a regular file"):
        FileStore(path).read()


@pytest.mark.parametrize(
    "named",
    ["http://127.0.0.1:9200/_shutdown", "http://[::1]:1/", "http://localhost/x", "file:///etc/passwd", "http://x"],
)
def test_metadata_of_a_server_elsewhere_is_not_asked_for_on_this_machine(named: str) -> None:
    """AUTH-240: whatever addresses the name of the server has by then."""
    steps = login(URL, OAuth(), Challenge("Bearer", {"resource_metadata": named}), LoginRecords())
    with pytest.raises(AuthorizationFailed, match="not an https URL"):
        next(steps)


def by_device(**said: Any) -> Any:
    """What a login by a code asks for, once that page and code were given."""
    return device_login(**said)[1]


def device_login(**said: Any) -> tuple[Any, Any]:
    """The steps of such a login, and the first that comes then."""
    endpoints = {name: f"{ISSUER}/{name}" for name in ("token_endpoint", "device_authorization_endpoint")}
    given = {"device_code": "d", "user_code": "c", "verification_uri": f"{ISSUER}/go", **said}
    documents: list[Any] = [
        {"resource": URL, "authorization_servers": [ISSUER]},
        {"issuer": ISSUER, **endpoints},
        given,
    ]
    steps = login(URL, OAuth(device=True, client_id="me", issuer=ISSUER), None, LoginRecords())
    step: Any = next(steps)
    for document in documents:
        assert isinstance(step, HttpStep)
        step = steps.send(Response(200, (), json.dumps(document).encode()))
    return steps, step


@pytest.mark.parametrize("page", ["javascript:alert(1)", "file:///etc/passwd", "http://evil.example/", "--flag", "x y"])
def test_no_page_for_a_code_that_no_browser_may_be_sent_to(page: str) -> None:
    """H22 (AUTH-193, AUTH-202): a program may show it in a browser."""
    for name in ("verification_uri", "verification_uri_complete"):
        with pytest.raises(AuthorizationFailed, match="not an https URL"):
            by_device(**{name: page})


@pytest.mark.parametrize("seconds", [1e12, 10**400])
def test_a_code_is_not_waited_for_without_end(seconds: float) -> None:
    step = by_device(interval=seconds, expires_in=seconds)
    assert isinstance(step, ShowCode)
    assert step.seconds <= 60


def test_a_code_is_asked_about_as_often_as_the_server_says() -> None:
    """AUTH-202: every `interval` seconds, by five more after each `slow_down` (RFC 8628 3.5), until the code ends."""
    steps, step = device_login(interval=7, expires_in=40)
    pauses = []
    with pytest.raises(AuthorizationFailed, match="not entered in time"):
        for error in ("authorization_pending", "slow_down", "slow_down", "authorization_pending"):
            pauses.append(step.seconds)
            assert isinstance(steps.send(None), HttpStep)
            step = steps.send(Response(400, (), json.dumps({"error": error}).encode()))
    assert pauses == [7, 7, 12, 17]


@pytest.mark.parametrize("seconds", [10**400, "9" * 5000, -(10**400), 1e308])
def test_numbers_that_are_none(seconds: Any) -> None:
    """H19: whatever a token endpoint says, it is an answer or an error in words."""
    steps = request_tokens(f"{ISSUER}/token", {}, None)
    next(steps)
    said = {"access_token": "t", "token_type": "Bearer", "expires_in": seconds}
    with pytest.raises(StopIteration) as ended:
        steps.send(Response(200, (), json.dumps(said).encode()))
    assert ended.value.value.lifetime in (None, 10 * 365 * 86400)


async def test_a_client_id_makes_no_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The authorization server chose it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    client_id = "x\nhttps://bank.example/mcp\n  issuer   https://bank.example\x1b[8m"
    FileStore().change(lambda kept: kept.add(Login(url=URL, issuer=ISSUER, client_id=client_id)))
    assert await show_logins(Terminal(), ServerOptions(target=None, called="mcpd whoami"), as_json=False) == 0
    assert not any(line.startswith("https://bank") for line in capsys.readouterr().out.splitlines())
