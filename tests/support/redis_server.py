"""A Redis server of a test's own, on a unix socket in a temporary folder: Debian's `redis-server`."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

__all__ = ["NEEDS_REDIS", "Cluster", "RedisServer", "Sentinels", "redis_cluster", "redis_sentinels", "redis_tls"]

NEEDS_REDIS = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


class RedisServer:
    """Runs while it is entered; `url` is where. What it holds is lost with `kill`, and not by `pause`."""

    def __init__(self, *arguments: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mcpd-redis-")
        self.socket = Path(self._folder.name) / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, again after a `kill`."""
        self.socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--dir", self._folder.name,
             *self._arguments],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        _await_line(self._process, b"to accept connections")

    def pause(self) -> None:
        """It takes connections and bytes, and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again, also what it was sent meanwhile."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """It is gone, with all that it held."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def say(self, *words: str) -> str:
        """What it answers to a command, by `redis-cli`, outside of all that is tested."""
        done = subprocess.run(
            ["redis-cli", "-s", str(self.socket), *words], capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.strip()

    async def asay(self, *words: str) -> str:
        """The same, while the event loop goes on."""
        return await asyncio.to_thread(self.say, *words)

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.kill()
        self._folder.cleanup()


class Cluster:
    """Members that have a share of the slots each, and know each other; `url` names the first of them."""

    def __init__(self, folder: Path, members: int) -> None:
        self._folder = folder
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        with contextlib.ExitStack() as stack:
            probes = [stack.enter_context(socket.socket()) for _ in range(2 * members)]
            for probe in probes:
                probe.bind(("127.0.0.1", 0))
            found = [probe.getsockname()[1] for probe in probes]
        self.ports, self._bus_ports = found[:members], found[members:]
        self.url = f"redis+cluster://127.0.0.1:{self.ports[0]}"

    def start(self) -> None:
        """Start all: they are told of each other by the files that they would write, which saves them getting to know
        each other. Redis waits for two seconds after a start before a member of a cluster takes writes."""
        for index in range(len(self.ports)):
            folder = self._folder / str(index)
            folder.mkdir()
            (folder / "nodes.conf").write_text(self._known_to(index))
            self.run(index)
        for process in self._running.values():
            _await_line(process, b"Cluster state changed: ok")

    def _known_to(self, index: int) -> str:
        each = 16384 // len(self.ports)
        lines = []
        for member, (port, bus_port) in enumerate(zip(self.ports, self._bus_ports, strict=True)):
            flags = "myself,master" if member == index else "master"
            last = 16383 if member == len(self.ports) - 1 else (member + 1) * each - 1
            slots = f"{member * each}-{last}"
            lines.append(f"{_name(member)} 127.0.0.1:{port}@{bus_port} {flags} - 0 0 {member + 1} connected {slots}")
        return "\n".join([*lines, f"vars currentEpoch {len(self.ports)} lastVoteEpoch 0", ""])

    def run(self, index: int) -> None:
        """Start one."""
        self._running[index] = subprocess.Popen(
            ["redis-server", "--port", str(self.ports[index]), "--bind", "127.0.0.1", "--save", "",
             "--dir", str(self._folder / str(index)), "--cluster-enabled", "yes",
             "--cluster-port", str(self._bus_ports[index])],
            stdout=subprocess.PIPE,
        )  # fmt: skip

    def say(self, index: int, *words: str) -> str:
        """What one member answers to a command."""
        command = ["redis-cli", "-p", str(self.ports[index]), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    def slot(self, key: str) -> int:
        """Of that key."""
        return int(self.say(0, "cluster", "keyslot", key))

    def owner(self, key: str) -> int:
        """The member that has had that key's slot since the start."""
        return min(self.slot(key) // (16384 // len(self.ports)), len(self.ports) - 1)

    def move(self, key: str, to: int) -> None:
        """The slot of a key, of which there must be none yet, is another member's from now on."""
        slot = str(self.slot(key))
        owner = self.owner(key)
        if owner == to:
            return
        # So prepared, the new one takes it with an epoch that is later than all others', and nobody takes it back.
        self.say(to, "cluster", "setslot", slot, "importing", _name(owner))
        self.say(owner, "cluster", "setslot", slot, "migrating", _name(to))
        for index in (to, owner, *(index for index in range(len(self.ports)) if index not in (to, owner))):
            self.say(index, "cluster", "setslot", slot, "node", _name(to))

    def stop(self) -> None:
        """End all."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.communicate()


def _name(member: int) -> str:
    return f"{member + 1:040x}"


@contextmanager
def redis_cluster(members: int = 3) -> Iterator[Cluster]:
    """A cluster without replicas."""
    with tempfile.TemporaryDirectory(prefix="mcpd-redis-") as folder:
        cluster = Cluster(Path(folder), members)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def redis_tls() -> Iterator[tuple[str, str]]:
    """The URL of a server that speaks TLS with a certificate of its own making, and that of one who trusts nobody."""
    with tempfile.TemporaryDirectory(prefix="mcpd-redis-") as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        key, certificate = f"{folder}/key.pem", f"{folder}/ca.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate],
            check=True, capture_output=True,
        )  # fmt: skip
        tls = ["--tls-port", str(port), "--tls-cert-file", certificate, "--tls-key-file", key,
               "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no"]  # fmt: skip
        with RedisServer(*tls):
            yield f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}", f"rediss://localhost:{port}/0"


class Sentinels:
    """A master with one replica, and a sentinel that watches them; `url` is the sentinel's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        with contextlib.ExitStack() as stack:
            for name in ("master", "replica", "sentinel"):
                probe = stack.enter_context(socket.socket())
                probe.bind(("127.0.0.1", 0))
                self.ports[name] = probe.getsockname()[1]
        self.url = f"redis+sentinel://127.0.0.1:{self.ports['sentinel']}/garden/0"

    def start(self) -> None:
        """Start all three; the replica follows its master when this returns."""
        of = ["--replicaof", "127.0.0.1", str(self.ports["master"])]
        self._start("master", "--repl-diskless-sync-delay", "0", awaits=b"to accept connections")
        self._start("replica", *of, awaits=b"Finished with success")
        config = self._folder / "sentinel.conf"
        config.write_text(
            f"port {self.ports['sentinel']}\nsentinel monitor garden 127.0.0.1 {self.ports['master']} 1\n"
            "sentinel down-after-milliseconds garden 1000\nsentinel failover-timeout garden 1000\n"
        )
        command = ["redis-server", str(config), "--sentinel"]
        self._running["sentinel"] = subprocess.Popen(command, stdout=subprocess.PIPE)
        _await_line(self._running["sentinel"], b"+slave")

    def _start(self, name: str, *more: str, awaits: bytes) -> None:
        folder = self._folder / name
        folder.mkdir()
        command = ["redis-server", "--port", str(self.ports[name]), "--bind", "127.0.0.1", "--save", "", "--dir",
                   str(folder), *more]  # fmt: skip
        self._running[name] = subprocess.Popen(command, stdout=subprocess.PIPE)
        _await_line(self._running[name], awaits)

    def kill_master(self) -> None:
        """It is gone, and the replica takes its place when this returns, with all that was written until now."""
        # The order of writes is kept, so the replica has the earlier ones once it has this one.
        with socket.create_connection(("127.0.0.1", self.ports["master"])) as connected:
            connected.sendall(b"SET replicated 1\r\nWAIT 1 0\r\n")
            answer = b""
            while not answer.endswith(b":1\r\n"):
                answer += connected.recv(64)
        self._running["master"].kill()
        _await_line(self._running["sentinel"], b"+switch-master")

    def stop(self) -> None:
        """End all three."""
        for process in self._running.values():
            process.kill()
            process.communicate()


@contextmanager
def redis_sentinels() -> Iterator[Sentinels]:
    """A service of two servers and a sentinel."""
    with tempfile.TemporaryDirectory(prefix="mcpd-redis-") as folder:
        found = Sentinels(Path(folder))
        try:
            found.start()
            yield found
        finally:
            found.stop()


def _await_line(process: subprocess.Popen[bytes], text: bytes) -> None:
    """Read what it logs up to a line with this text; it logs little, so that the rest may stay in the pipe."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"{text!r} was never said")
