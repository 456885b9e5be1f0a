"""`mcpd serve --stdio --attach`: many hosts share one daemon, each on its own pipes.

Each test has a folder for sockets of its own, so it has daemons of its own, which end with the test.
"""

from __future__ import annotations

import array
import asyncio
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.clock import until
from support.wires import MODERN, envelope, initialize

from mcpd.cli.attach import shim
from mcpd.server.observe.control import _runs

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(not hasattr(os, "posix_spawn") or sys.platform == "darwin", reason="needs /proc"),
]

SERVER = """
import asyncio, logging, os
from mcpd import Attach, Context, Server

server = Server("shared"{options})
log = logging.getLogger("shared")
VERSION = {version}

@server.tool
async def who(ctx: Context) -> dict:
    process = ctx.client_process
    log.warning("asked by %s", process.pid)
    environ = {{"environ": process.environ, "version": VERSION}}
    return {{"daemon": os.getpid(), "pid": process.pid, "cwd": process.cwd, **environ}}

@server.tool
async def wait() -> str:
    print("waiting", flush=True)
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        log.warning("cancelled")
        raise
    return ""

@server.tool
async def say(text: str) -> str:
    return text
"""

MORE = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Host:
    """One client, as a host starts it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.version: str | None = None
        self.errors = ""
        self._ids = 10

    def send(self, message: Any) -> None:
        assert self.process.stdin is not None
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def initialize(self, version: str = "2025-11-25") -> Any:
        self.version = version
        self.send(initialize(version))
        answer = self.receive()
        self.send(MORE)
        return answer

    def ask(self, method: str, params: dict[str, Any], meta: dict[str, Any] | None = None) -> int:
        self._ids += 1
        if self.version is None:
            params = {**params, "_meta": {**envelope(), **(meta or {})}}
        self.send({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        return self._ids

    def call(self, name: str, **arguments: Any) -> Any:
        """Call a tool, and return its text, or what it says as JSON."""
        number = self.ask("tools/call", {"name": name, "arguments": arguments})
        while (message := self.receive()) is not None:
            if message.get("id") == number:
                return message["result"].get("structuredContent") or message["result"]["content"][0]["text"]
        return None

    def end(self) -> tuple[int, str]:
        """Close the host's end; returns the exit code, and all that came on stderr."""
        process = self.process
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stdout is not None
        if not process.stderr.closed:
            with suppress(BrokenPipeError):
                process.stdin.close()
            self.errors = process.stderr.read().decode()
            process.wait(60)
            process.stdout.close()
            process.stderr.close()
        return process.returncode, self.errors


class Stage:
    """Hosts that start the same server, and the daemons behind them."""

    def __init__(self, child: Child, folder: Path) -> None:
        self.child = child
        self.folder = folder
        self.runtime = folder / "run"
        self.runtime.mkdir(mode=0o700)
        self.file = folder / "server.py"
        self.hosts: list[Host] = []
        self.write()

    def write(self, options: str = "", version: int = 1) -> None:
        self.file.write_text(SERVER.format(options=options, version=version))

    def command(self, *words: str) -> list[str]:
        return self.child.mcpd("serve", "--stdio", "--attach", str(self.file), *words)

    def start(
        self,
        *words: str,
        env: Mapping[str, str] = {},
        cwd: Path | None = None,
        attached: bool = True,
        command: list[str] | None = None,
        **more: Any,
    ) -> Host:
        command = command or self.command(*words)
        if not attached:
            command.remove("--attach")
        environment = {**self.child.env, "XDG_RUNTIME_DIR": str(self.runtime), **env}
        process = subprocess.Popen(
            command, env=environment, cwd=cwd or self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, **more,
        )  # fmt: skip
        self.hosts.append(Host(process))
        return self.hosts[-1]

    def initialized(self, **how: Any) -> Host:
        host = self.start(**how)
        answer = host.initialize()
        assert answer, host.end()
        assert answer["result"]["serverInfo"]["name"] == "shared"
        return host

    @property
    def daemons(self) -> list[int]:
        """The daemons that have not given up their place."""
        found = (self.runtime / "mcpd").glob("control-*.sock")
        return sorted(pid for each in found if _runs(pid := int(each.stem.removeprefix("control-"))))

    @property
    def sockets(self) -> list[Path]:
        return sorted((self.runtime / "mcpd").glob("attach-*.sock"))

    def close(self) -> None:
        for host in self.hosts:
            if host.process.poll() is None:
                host.process.kill()
            host.end()
        pids = self.daemons
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        until_true(lambda: not any(map(_runs, pids)))


def until_true(what: Callable[[], object]) -> None:
    """Wait for something that another process does; the test's own time limit ends the wait."""
    asyncio.run(until(what))


@pytest.fixture
def stage(child: Child, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(child, tmp_path)
    yield made
    made.close()


def private_bytes(pid: int) -> int:
    """The memory that this process does not share with others."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Private_"))


def test_two_clients_share_a_process_and_no_session(stage: Stage) -> None:
    """ATT-01: their versions, capabilities and ids are their own."""
    old, new = stage.initialized(), stage.start()
    number = new.ask("server/discover", {})
    assert MODERN in new.receive()["result"]["supportedVersions"]
    first, second = old.call("who"), new.call("who")
    assert first["daemon"] == second["daemon"] == stage.daemons[0]
    assert (first["pid"], second["pid"]) == (old.process.pid, new.process.pid)
    assert number

    # Only the client that asks for messages of a level gets them.
    old.ask("logging/setLevel", {"level": "debug"})
    assert old.receive()["result"] == {}
    assert new.call("say", text="hello") == "hello"


def test_a_further_client_costs_a_fifth_of_a_process_at_most(stage: Stage) -> None:
    """ATT-02: in private memory, the process that waits and the daemon's share together."""
    direct = stage.initialized(attached=False)
    direct.call("say", text="a")
    whole = private_bytes(direct.process.pid)

    first = stage.initialized()
    first.call("say", text="a")
    daemon = stage.daemons[0]
    before = private_bytes(daemon)
    others = [stage.initialized() for _ in range(8)]
    for each in others:
        each.call("say", text="a")
    waiting = max(private_bytes(each.process.pid) for each in others)
    share = (private_bytes(daemon) - before) / len(others)
    assert waiting + share <= whole / 5


def test_the_first_process_loads_little(child: Child, stage: Stage) -> None:
    """ATT-03, ATT-16: what `mcpd` loads beside what every Python does; the daemon's own start is elsewhere."""
    script = Path(sys.executable).with_name("mcpd")
    host = stage.start(command=[child.python, "-X", "importtime", str(script), *stage.command()[3:]])
    host.initialize()
    code, text = host.end()
    loaded = [line.rpartition("|")[2].strip() for line in text.splitlines() if line.startswith("import time:")]
    after = set(loaded[loaded.index("site") + 1 :])
    ours = {"mcpd", "mcpd.moved", "mcpd.cli", "mcpd.cli.attach", "mcpd.cli.attach.shim"}
    # `__future__`, and what finds modules by their old names, are a matter of the package itself.
    assert after <= ours | {"_socket", "fcntl", "gc"} | {"__future__", "warnings", "importlib", "importlib.machinery"}
    assert code == 0


def test_nothing_stands_between_a_host_and_the_daemon(stage: Stage) -> None:
    """ATT-04: the daemon has the host's own pipes, and the waiting process has none of them."""
    host = stage.initialized()
    assert host.process.stdin is not None
    pipe = os.readlink(f"/proc/self/fd/{host.process.stdin.fileno()}")
    daemon = stage.daemons[0]

    def pipes(pid: int) -> set[str]:
        found = set()
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
        return found

    assert pipe in pipes(daemon)
    assert pipe not in pipes(host.process.pid)


def test_fifty_hosts_at_once_start_one_daemon(stage: Stage) -> None:
    """ATT-05: all are served."""
    with ThreadPoolExecutor(50) as pool:
        hosts = [stage.start() for _ in range(50)]
        answers = list(pool.map(Host.initialize, hosts))
        assert all(answer["result"]["serverInfo"]["name"] == "shared" for answer in answers)
        assert {host.call("who")["daemon"] for host in hosts} == set(stage.daemons)
    assert len(stage.daemons) == 1
    for host in hosts:
        code, text = host.end()
        assert (code, "without a daemon" in text) == (0, False)


def test_a_killed_client_ends_its_own_calls_only(stage: Stage) -> None:
    """ATT-06, ATT-08: also if the host kills the whole group of processes that it has started."""
    victim, other = stage.initialized(start_new_session=True), stage.initialized()
    victim.ask("tools/call", {"name": "wait", "arguments": {}})
    until_true(lambda: b"waiting" in log_of(stage))
    os.killpg(victim.process.pid, signal.SIGKILL)
    assert victim.receive() is None
    code, text = victim.end()
    assert code == -signal.SIGKILL
    assert "cancelled" in text
    assert other.call("say", text="still here") == "still here"


def log_of(stage: Stage) -> bytes:
    """What the daemons have written that belongs to no client."""
    return b"".join(path.read_bytes() for path in sorted((stage.runtime / "mcpd").glob("attach-*.log")))


def test_clients_end_with_a_killed_daemon_and_the_next_one_starts_another(stage: Stage) -> None:
    """ATT-07: whatever is left in the folder."""
    host = stage.initialized()
    daemon = stage.daemons[0]
    os.kill(daemon, signal.SIGKILL)
    assert host.receive() is None
    assert host.end()[0] == 1
    assert stage.sockets
    assert stage.initialized().call("who")["daemon"] != daemon


@pytest.mark.parametrize("fault", ["mode", "link", "file"])
def test_an_unsafe_folder_is_not_used(stage: Stage, fault: str) -> None:
    """ATT-09: the client is served directly, and one line says why."""
    folder = stage.runtime / "mcpd"
    if fault == "mode":
        folder.mkdir()
        folder.chmod(0o755)
    elif fault == "link":
        (stage.folder / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(stage.folder / "elsewhere")
    else:
        folder.touch()
    host = stage.start()
    assert host.initialize()["result"]
    code, text = host.end()
    assert code == 0
    assert text.count("\n") == 1
    assert "served without a daemon" in text
    assert str(folder) in text


def test_a_planted_socket_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """ATT-09: a socket that belongs to somebody else, as `lstat` says."""
    stage.initialized()
    path = stage.sockets[0]
    real = os.lstat

    def other(name: Any, **more: Any) -> Any:
        found = real(name, **more)
        return found if name != str(path) else os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

    monkeypatch.setattr(os, "lstat", other)
    with pytest.raises(OSError, match="another user"):
        shim._connect(str(path))


def test_another_folder_or_variable_has_another_daemon(stage: Stage) -> None:
    """ATT-10: sharing must surprise nobody. Variables of shells and windows do not count."""
    elsewhere = stage.folder / "elsewhere"
    elsewhere.mkdir()
    first = stage.initialized().call("who")
    assert stage.initialized(env={"SHLVL": "7", "TERM_SESSION_ID": "x"}).call("who")["daemon"] == first["daemon"]
    others = [
        stage.initialized(cwd=elsewhere).call("who")["daemon"],
        stage.initialized(env={"API_KEY": "b"}).call("who")["daemon"],
    ]
    assert len({first["daemon"], *others}) == 3


def test_the_author_says_what_has_to_be_the_same(stage: Stage) -> None:
    """ATT-10: here one variable counts, and not the folder, which the server is told."""
    stage.write(', attach=Attach(environ=("API_KEY",), cwd=False)')
    elsewhere = stage.folder / "elsewhere"
    elsewhere.mkdir()
    first = stage.initialized(env={"API_KEY": "a", "OTHER": "1"}).call("who")
    second = stage.initialized(env={"API_KEY": "a", "OTHER": "2"}, cwd=elsewhere).call("who")
    third = stage.initialized(env={"API_KEY": "b"}).call("who")
    assert first["daemon"] == second["daemon"] != third["daemon"]
    assert second["cwd"] == str(elsewhere)
    assert (second["environ"], third["environ"]) == ({"API_KEY": "a"}, {"API_KEY": "b"})


def test_an_edited_server_serves_new_clients(stage: Stage) -> None:
    """ATT-11: old clients finish with the code that they have."""
    old = stage.initialized()
    before = old.call("who")
    stage.write(version=20)
    new = stage.initialized()
    after = new.call("who")
    assert (before["version"], after["version"]) == (1, 20)
    assert before["daemon"] != after["daemon"]
    assert old.call("who")["version"] == 1

    # The old daemon ends with its last client, and takes nothing of the new one along.
    old.end()
    until_true(lambda: not _runs(before["daemon"]))
    assert stage.initialized().call("who")["daemon"] == after["daemon"]


def test_a_client_that_does_not_read_holds_up_nobody(stage: Stage) -> None:
    """ATT-12: its answers wait in its pipe, and then it is read no further."""
    deaf, other = stage.initialized(), stage.initialized()
    text = "x" * 100_000
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(
            lambda: [deaf.ask("tools/call", {"name": "say", "arguments": {"text": text}}) for _ in range(200)]
        )
        for number in range(20):
            assert other.call("say", text=str(number)) == str(number)
        assert not sending.done()
        # Read at last: nothing is lost.
        found = [deaf.receive()["id"] for _ in range(200)]
        assert sorted(found) == sending.result()


def test_stderr_has_the_lines_of_ones_own_calls(stage: Stage) -> None:
    """ATT-13."""
    one, two = stage.initialized(), stage.initialized()
    for _ in range(30):
        one.call("who")
    two.call("who")
    one.send(b"not a message\n")
    one.receive()
    texts = one.end()[1], two.end()[1]
    for text, host, other in zip(texts, (one, two), (two, one), strict=True):
        assert f"asked by {host.process.pid}" in text
        assert f"asked by {other.process.pid}" not in text
    assert texts[0].count("asked by") == 30
    assert texts[1].count("\n") == 1


def test_a_daemon_ends_when_nobody_needs_it(stage: Stage) -> None:
    """ATT-14: nothing that runs is left, and no socket."""
    host = stage.start("--linger", "0.2")
    host.initialize()
    daemon = host.call("who")["daemon"]
    host.end()
    until_true(lambda: not _runs(daemon))
    assert not stage.sockets
    assert not stage.daemons
    again = stage.start("--linger", "0.2")
    assert again.initialize()["result"]


@pytest.mark.parametrize("how", ["end", signal.SIGTERM, signal.SIGINT])
def test_a_client_ends_as_without_a_daemon(stage: Stage, how: Any) -> None:
    """ATT-15: the end of the input and signals have the same exit codes."""
    codes = []
    for attached in (True, False):
        host = stage.initialized(attached=attached)
        host.call("say", text="a")
        if how != "end":
            host.process.send_signal(how)
            assert host.receive() is None
        codes.append(host.end()[0])
    assert codes == [0, 0]


def test_a_running_call_may_end_after_the_input(stage: Stage) -> None:
    """ATT-15: with a second signal it is cancelled."""
    host = stage.initialized()
    host.ask("tools/call", {"name": "wait", "arguments": {}})
    until_true(lambda: b"waiting" in log_of(stage))
    host.process.send_signal(signal.SIGTERM)
    host.process.send_signal(signal.SIGTERM)
    while host.receive() is not None:
        pass
    code, text = host.end()
    assert (code, "cancelled" in text) == (0, True)


def test_descriptors_do_not_pile_up(stage: Stage) -> None:
    """ATT-18: clients that come and go, killed ones and refused ones too, leave no descriptor."""
    kept = stage.initialized()
    daemon = stage.daemons[0]
    stage.initialized().end()
    before = len(os.listdir(f"/proc/{daemon}/fd"))
    for number in range(60):
        control = hand_over(stage, correct=number % 3 != 0)
        control.close()
    kept.call("say", text="a")
    until_true(lambda: len(os.listdir(f"/proc/{daemon}/fd")) == before)


def hand_over(stage: Stage, *, correct: bool = True, pieces: int = 1) -> socket.socket:
    """Attach as the first process does, but from this one; what it hands over is closed at once."""
    control = socket.socket(socket.AF_UNIX)
    control.connect(str(stage.sockets[0]))
    near, far = socket.socketpair()
    with near, far:
        message = b"x" * 5000
        data = b"%s%d %d\n%s%s" % (shim.GREETING, len(message), 4, message, b"1\0/a")
        rights = array.array("i", [far.fileno()] * 3 if correct else [far.fileno()])
        control.sendmsg([data[: len(data) // pieces]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        with suppress(BrokenPipeError):  # it may have refused the beginning
            control.sendall(data[len(data) // pieces :])
    return control


@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"mcpd attach 1\n-1 5\n", b"mcpd attach 1\n9999999999 1\n"]
)
def test_other_bytes_are_no_greeting(stage: Stage, data: bytes) -> None:
    """ATT-09: the connection is closed, and the daemon serves on."""
    kept = stage.initialized()
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(stage.sockets[0]))
        control.sendall(data)
        control.shutdown(socket.SHUT_WR)
        assert control.recv(100) == b""
    with hand_over(stage, pieces=3) as control:
        assert b"same name" in control.recv(1000)  # the whole environment is compared, not its hash
    assert kept.call("say", text="a") == "a"


def test_the_folder_of_a_daemon_is_private(stage: Stage) -> None:
    """ATT-09: no value of the environment is in a name or a file."""
    stage.initialized(env={"API_KEY": "planted-secret"})
    folder = stage.runtime / "mcpd"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        assert "planted" not in path.name
        if path.is_file():
            assert b"planted" not in path.read_bytes()


def test_a_server_that_does_not_start_says_so_to_its_host(stage: Stage) -> None:
    """The client is then served directly, where the error appears as without a daemon."""
    stage.file.write_text("raise ValueError('no such database')\n")
    code, text = stage.start().end()
    assert code == 1
    assert "no such database" in text
    assert not stage.daemons


@pytest.mark.parametrize("words", [("--http", ":0"), ("--ws", ":0"), ("--workers", "2")])
def test_a_daemon_serves_stdio_only(stage: Stage, words: tuple[str, ...]) -> None:
    code, text = stage.start(*words).end()
    assert code == 1
    assert f"leave out {words[0]} or --attach" in text


def test_the_variable_decides(stage: Stage) -> None:
    """MCPD_ATTACH=1 attaches what a host starts without the flag; MCPD_ATTACH=0 always wins."""
    assert stage.initialized(attached=False, env={"MCPD_ATTACH": "1"}).call("who")["daemon"] in stage.daemons
    alone = stage.initialized(env={"MCPD_ATTACH": "0"})
    assert alone.call("say", text="a") == "a"
    assert len(stage.daemons) == 1
    assert shim.is_wanted(["serve", "--stdio", "--attach"], {})
    assert not shim.is_wanted(["serve", "--stdio", "a.py", "--", "--attach"], {})
    assert not shim.is_wanted(["call", "--stdio", "--attach"], {})
    assert not shim.is_wanted(["serve", "--stdio", "--attach"], {shim.STARTED_FOR: "/a"})


def test_a_file_as_input_is_not_handed_over(stage: Stage) -> None:
    """Its non-blocking flag would be the shell's too."""
    requests = stage.folder / "requests"
    requests.write_text(json.dumps(initialize("2025-11-25")) + "\n")
    with requests.open("rb") as file:
        done = subprocess.run(
            stage.command(), env={**stage.child.env, "XDG_RUNTIME_DIR": str(stage.runtime)}, stdin=file,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
    assert b'"serverInfo"' in done.stdout
    assert (done.returncode, stage.daemons) == (0, [])


def test_the_status_has_the_clients_of_a_daemon(stage: Stage) -> None:
    stage.initialized()
    stage.initialized()
    environment = {**stage.child.env, "XDG_RUNTIME_DIR": str(stage.runtime)}
    done = subprocess.run(
        stage.child.mcpd("status"), env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert "clients: 2 in 2025-11-25" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_NOFILE)
