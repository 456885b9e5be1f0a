"""Secrets are planted in a whole login, and looked for in all that anybody says of it: logs, errors, processes, files.

The server runs at level debug with a wire log, the user logs in by the command, calls a tool that breaks, asks the
doctor, and logs out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import REPOSITORY
from support.login_stage import PASSWORD, users_file
from support.oidc_provider import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are looked at in /proc"),
]

APPROVE = str(REPOSITORY / "conformance" / "approve.py")
PLANTED = "planted-secret-of-a-provider"
SERVER = """
from mcpd import Context, Server

server = Server("garden")


@server.tool
async def who(ctx: Context) -> str:
    return ctx.user.subject


@server.tool
async def crash(ctx: Context) -> str:
    raise RuntimeError(f"crashed: {ctx.user!r} {ctx.headers!r} {ctx!r}")
"""


class Heard:
    """All that was said, by whom."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: dict[str, str] = {}
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "MCPD_LOGIN": f"ana:{PASSWORD}"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command of ours; its command line is heard too."""
        started = subprocess.Popen(
            [sys.executable, "-m", "mcpd", *words], cwd=self.folder, env=self.env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.said[f"command line {words}"] = Path(f"/proc/{started.pid}/cmdline").read_text()
        return started

    def run(self, *words: str) -> int:
        """The same until it ends."""
        return self.end(self.start(*words), words)

    def end(self, started: subprocess.Popen[str], words: tuple[str, ...], typed: str = "") -> int:
        """Hear the rest of a command."""
        out, err = started.communicate(typed, timeout=60)
        self.said[str(words)] = self.said.get(str(words), "") + out + err
        return started.returncode


def test_no_secret_of_a_login_is_anywhere_but_in_its_store(tmp_path: Path) -> None:
    """H16, AUTH-057, AUTH-060, S25-151, S26-184."""
    users_file(tmp_path)
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    (tmp_path / "corp.secret").write_text(PLANTED, encoding="utf-8")
    corp = "[sign-in.corp]\nclient-id = 'x'\nissuer = 'https://no-such.invalid'\nallow = ['a@b']\n"
    (tmp_path / "auth.toml").write_text(
        f"[sign-in.users]\nfile = 'users.toml'\n{corp}client-secret-file = 'corp.secret'\n", encoding="utf-8"
    )
    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    heard = Heard(tmp_path)
    words = ("serve", "--http", f"127.0.0.1:{port}", "--auth-server", "auth.toml", "--log-level", "debug",
             "--log-arguments", "--wire-log", "wire.log", "server.py")  # fmt: skip
    server = heard.start(*words)
    try:
        assert server.stderr is not None
        early = ""
        while "listening on" not in early:
            early += (line := server.stderr.readline())
            assert line, early
        heard.said[str(words)] = early
        code = _log_in(heard, url)
        store = json.loads((tmp_path / "state" / "mcpd" / "auth.json").read_text())
        login = store["logins"][0]
        assert heard.run("call", url, "who") == 0
        assert heard.run("call", url, "crash") != 0
        assert heard.run("doctor", url) == 0
        assert heard.run("whoami") == 0
        assert heard.run("call", url, "who", "--header", f"Authorization: Bearer {login['access_token']}x") != 0
        server.terminate()
        heard.end(server, words)
    finally:
        server.kill()
        server.wait()

    heard.said["wire log"] = (tmp_path / "wire.log").read_text()
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("auth-state.sqlite*"))
    heard.said["state of the server"] = kept.decode("latin-1")
    # What the user types on a command line is for all to see, as they know.
    del heard.said[next(name for name in heard.said if "command line" in name and "--header" in name)]
    assert "crashed: " in heard.said[str(words)]
    for secret in (PASSWORD, PLANTED, code, login["access_token"], login["refresh_token"]):
        assert [who for who, said in heard.said.items() if secret in said] == []


def _log_in(heard: Heard, url: str) -> str:
    """Log in by a browser elsewhere, whose last address is pasted; gives the code in it."""
    words = ("login", "--no-browser", url)
    login = heard.start(*words)
    try:
        assert login.stderr is not None
        page = ""
        while not page.startswith("http"):
            page = login.stderr.readline()
            assert page
        done = subprocess.run(
            [sys.executable, APPROVE, "--print", page.strip()], env=heard.env, capture_output=True, text=True,
            check=True, timeout=60,
        )  # fmt: skip
        returned = done.stdout.strip()
        assert heard.end(login, words, f"{returned}\n") == 0
    finally:
        login.kill()
        login.wait()
    return parse_qs(urlsplit(returned).query)["code"][0]
