"""`mcpd login`, `whoami`, `logout`: as a user types them, with a browser on this machine, on another, or none."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import Child
from support.login_world import LoginWorld, world


class Commands:
    """`mcpd` with a home of its own."""

    def __init__(self, child: Child, home: Path) -> None:
        self._child = child
        self._env = {**child.env, "XDG_STATE_HOME": str(home), "SSH_CONNECTION": "1"}
        self.file = home / "mcpd" / "auth.json"

    async def run(self, *words: str) -> tuple[int | None, str, str]:
        """Exit code, stdout and stderr."""
        async with self.started(*words) as process:
            out, err = await process.communicate(b"")
            return process.returncode, out.decode(), err.decode()

    @asynccontextmanager
    async def started(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A command that runs."""
        process = await asyncio.create_subprocess_exec(
            *self._child.mcpd(*words),
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.fixture
def commands(child: Child, tmp_path: Path) -> Commands:
    return Commands(child, tmp_path / "state")


async def address_in(process: asyncio.subprocess.Process) -> str:
    """The page that the user is asked to visit."""
    assert process.stderr is not None
    while line := (await process.stderr.readline()).decode():
        if found := re.search(r"http://\S+/authorize\?\S+", line):
            return found[0]
    raise AssertionError("no address was printed")


async def get(url: str, host: str | None = None) -> int:
    """The status of a GET, as a browser sends it."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {host or parts.netloc}\r\n\r\n".encode())
    head = await reader.read()
    writer.close()
    assert b"no-referrer" in head
    assert parts.query.encode() not in head
    return int(head.split()[1])


async def test_a_login_from_the_first_word_to_the_last(commands: Commands) -> None:
    """H23, AUTH-186, AUTH-192, AUTH-216: what is no return of this login is ignored; no token is ever shown."""
    async with world() as there:
        code, _, err = await commands.run("list", there.url)
        assert code == 3
        assert f"mcpd login {there.url}" in err

        async with commands.started("login", there.url) as process:
            there.visit(await address_in(process))
            back = there._returned
            wrong = back.replace("state=", "state=x")
            for url, host in ((wrong, None), (back, "evil.example.com"), (back.replace("/callback", "/other"), None)):
                assert await get(url, host) == 404
            assert await get(back) == 200
            assert process.stdout is not None
            out = (await process.stdout.read()).decode()
            assert await process.wait() == 0
        assert f"logged in to {there.url}" in out

        code, out, _ = await commands.run("list", there.url, "tools")
        assert (code, "read" in out) == (0, True)
        code, out, _ = await commands.run("whoami")
        assert code == 0
        assert there.url in out
        code, shown, _ = await commands.run("login", "--list", "--json")
        (found,) = json.loads(shown)
        assert (found["url"], found["scopes"], found["isRefreshed"]) == (there.url, ["basic"], True)
        assert "secret-" not in out + shown

        kept = json.loads(commands.file.read_text())["logins"][0]
        code, out, _ = await commands.run("logout", there.url)
        assert (code, out) == (0, f"logged out of {there.url}\n")
        assert [form["token"] for form in there.forms[-2:]] == [kept["refresh_token"], kept["access_token"]]
        assert (await commands.run("whoami", there.url))[0] == 1
        assert (await commands.run("logout", there.url))[0] == 1


async def test_the_address_is_pasted_where_the_browser_is_elsewhere(commands: Commands) -> None:
    """AUTH-192: over SSH nobody comes back to this machine."""
    async with world(metadata={"revocation_endpoint": None}) as there:
        async with commands.started("login", "--no-browser", "--scope", "mine", there.url) as process:
            there.visit(await address_in(process))
            assert process.stdin is not None
            process.stdin.write(f"what?\n{there._returned}\n".encode())
            out, _ = await process.communicate()
            assert process.returncode == 0, out
        assert there.visits[0]["scope"] == "mine"
        commands.file.chmod(0o644)
        code, _, err = await commands.run("list", there.url)
        assert (code, "chmod 600" in err) == (1, True)
        code, _, err = await commands.run("logout", "--all")
        assert (code, "deleted" in err) == (0, True)
        assert not commands.file.exists()


async def test_a_code_for_another_device(commands: Commands) -> None:
    """AUTH-202."""
    async with world(metadata={"revocation_endpoint": None}) as there:
        there.metadata["device_authorization_endpoint"] = f"{there.origin}/device"
        code, out, err = await commands.run("login", "--device", there.url)
        assert code == 0, err
        assert "ABCD-EFGH" in err
        code, _, err = await commands.run("logout", there.url)
        assert (code, "not revoked" in err) == (0, True)


async def test_what_is_said_wrong(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text("")
    async with world() as there:
        for words, said in (
            (["login"], "mcpd login URL"),
            (["login", "--client-secret-file", "x", there.url], "--client-id"),
            (["login", str(file)], "only servers at URLs"),
            (["logout"], "--all"),
        ):
            code, _, err = await commands.run(*words)
            assert (code, said in err) == (2, True), err
        code, _, err = await commands.run("login", "--client-id", "x", "--client-secret-file", "gone", there.url)
        assert (code, "gone" in err) == (1, True)
        assert (await commands.run("logout", "--all"))[0] == 1


async def test_a_login_that_fails_is_one_line(commands: Commands) -> None:
    """AUTH-173."""

    async def failing(there: LoginWorld) -> str:
        code, _, err = await commands.run("login", there.url)
        assert code == 1
        assert err.count("\n") == 1, err
        return err

    async with world(metadata={"issuer": "https://evil.example.com"}) as there:
        there.resource["authorization_servers"] = [there.origin]
        assert "its issuer is" in await failing(there)
