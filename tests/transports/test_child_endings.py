"""What is said of a child that cannot be started, or that has ended: the command, the cause, its last words."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from mcpd.errors import CannotConnect, ConfigurationError, ConnectionLost, McpdError, ProtocolError
from mcpd.protocol.channel import Receiver
from mcpd.transports import child, process
from mcpd.transports.process import open_process

pytestmark = pytest.mark.timeout(60)


class Ear(Receiver):
    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.ended: asyncio.Future[McpdError | None] = asyncio.get_running_loop().create_future()

    def receive(self, frame: bytes) -> None:
        self.heard.append(frame)

    def receive_error(self, error: ProtocolError) -> None:
        raise AssertionError(error)

    def closed(self, error: McpdError | None = None) -> None:
        self.ended.set_result(error)


async def ending(code: str, *, name: str = "", kind: type[McpdError] = CannotConnect) -> tuple[str, Ear]:
    """What is said at the end of a child that runs this code, and was sent nothing."""
    ear = Ear()
    channel = await open_process([sys.executable, "-S", "-c", code], name=name)
    try:
        channel.start(ear)
        error = await ear.ended
    finally:
        await channel.aclose()
    assert type(error) is kind
    assert "\n" not in str(error)
    return str(error), ear


async def test_its_exit_code_and_last_words() -> None:
    last = r"b'a\n\n  \x1b[31mb\x1b[0m\x1b[2J\nlast'"
    code = rf"import os; os.write(1, b'one\ntwo'); os.write(2, {last}); raise SystemExit(3)"
    said, ear = await ending(code, name="claude-code:github")
    assert said == r"claude-code:github: the server has ended with exit code 3; stderr: a | b\x1b[2J | last"
    assert ear.heard == [b"one", b"two"]


async def test_a_signal() -> None:
    said, _ = await ending("import os; os.kill(os.getpid(), 9)", name="mine")
    assert said == "mine: the server was ended by SIGKILL"


async def test_a_flood_of_last_words_is_cut() -> None:
    said, _ = await ending("import sys; sys.stderr.write(''.join(f'{n} ' + 'x' * 500 + chr(10) for n in range(9999)))")
    assert "9998 xxx" in said
    assert said.startswith(f"{sys.executable} -S -c ")
    assert len(said) < 1200


async def test_a_child_that_stays_and_says_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "EXIT_SECONDS", 0.1)
    monkeypatch.setattr(child, "GRACE_SECONDS", 0.1)
    said, _ = await ending("import os, time; os.close(1); time.sleep(600)", name="mine", kind=ConnectionLost)
    assert said == "mine: the server has closed its stdout"


async def test_what_cannot_be_started(tmp_path: Path) -> None:
    text, script, gone = tmp_path / "text", tmp_path / "script", tmp_path / "gone"
    text.write_text("no program", encoding="utf-8")
    script.write_bytes(b"\x00\x01\x02")
    script.chmod(0o755)
    gone.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    gone.chmod(0o755)
    for command, cwd, said in [
        (["no-such-program-here"], None, "cannot be started: there is no such program on PATH; install it, or give"),
        (["npx", "x"], None, "npx cannot be started: .* install Node.js, or give its whole path"),
        ([str(tmp_path / "nothing")], None, "nothing cannot be started: there is no such file"),
        ([str(text)], None, "text cannot be started: it is not a program, or not executable"),
        ([str(script)], None, "script cannot be started: it is not a program .*; name what runs it"),
        ([str(gone)], None, "its interpreter, in the first line, is missing"),
        ([sys.executable], "/no/such/folder", "cannot be started in /no/such/folder: No such file or directory"),
        ([sys.executable, "a\0b"], None, "cannot be started: embedded null byte"),
        ([], None, "a command is a list of strings"),
    ]:
        before = set(os.listdir("/proc/self/fd"))
        with pytest.MonkeyPatch.context() as patch:
            if command[:1] == ["npx"]:
                patch.setenv("PATH", str(tmp_path))
            with pytest.raises(ConfigurationError, match=said) as raised:
                await open_process(command, cwd=cwd)
        assert "\n" not in str(raised.value)
        assert set(os.listdir("/proc/self/fd")) == before
