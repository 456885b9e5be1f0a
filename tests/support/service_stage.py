"""One service as it is deployed: processes of `mcpd serve` with a Redis of their own, behind the proxies of `deploy/`.

The files of `deploy/` are taken as they are but for their ports. Each request goes to whichever process is next.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.http_peer import Peer, Port, initialize, modern, post, request
from support.redis_server import RedisServer
from websockets.asyncio.client import connect

__all__ = ["DEPLOY", "NodeProcess", "Service", "free_ports", "missing", "service", "speak_by_every_transport"]

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
KEY = "a key for all nodes of one service"
TIMEOUT = 60.0


def missing(*programs: str) -> str:
    """Which of these is not installed; empty if all are."""
    return ", ".join(name for name in programs if shutil.which(name) is None)


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    probes = [socket.socket() for _ in range(number)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    found = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return found


class NodeProcess:
    """One `mcpd serve` on a port that stays its own; `before` is what stands before `-m mcpd serve`."""

    def __init__(self, port: int, command: Sequence[str], env: dict[str, str]) -> None:
        self.port = port
        self.env = env
        self.command = list(command)
        self.log: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._told = threading.Event()

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; `wait` says when it listens."""
        told = self._told = threading.Event()  # of this one: the reader of an earlier process may still be ending
        self._process = subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        threading.Thread(target=self._read, args=(self._process, told), daemon=True).start()

    def wait(self) -> None:
        """Until it listens."""
        assert self._told.wait(TIMEOUT)
        assert self._process is not None
        assert self._process.poll() is None, "".join(self.log)

    def _read(self, process: subprocess.Popen[bytes], told: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self.log.append(line.decode(errors="replace"))
                if b"/mcp" in line:
                    told.set()
        told.set()

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT)

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Service:
    """The nodes, their Redis, and the ports of the proxies by name."""

    def __init__(self, nodes: list[NodeProcess], redis: RedisServer) -> None:
        self.nodes = nodes
        self.redis = redis
        self.proxies: dict[str, int] = {}

    def url(self, proxy: str = "nginx") -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self.proxies[proxy]}/mcp"

    def at(self, proxy: str = "nginx") -> Port:
        """A client's end, in bytes, of a proxy."""
        return _port(self.proxies[proxy])

    def node(self, index: int) -> Port:
        """The same of one node, past all proxies."""
        return _port(self.nodes[index].port)

    def of(self, pid: str | int) -> NodeProcess:
        """The node of that process id."""
        return next(node for node in self.nodes if node.pid == int(pid))


def _port(number: int) -> Port:
    listener: Any = SimpleNamespace(url=f"http://127.0.0.1:{number}/mcp", app=None)
    return Port(listener)


@contextmanager
def service(
    python: str,
    env: dict[str, str],
    folder: Path,
    target: str | Path,
    *,
    number: int = 3,
    proxies: Sequence[str] = ("nginx",),
    options: Sequence[str] = (),
    redis: RedisServer | None = None,
    backplane: str = "",
) -> Iterator[Service]:
    """A service that answers. `backplane` is the URL that the nodes get, in the place of their Redis's own."""
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer() if redis is None else redis)
        ports = free_ports(number)
        whole = {"MCPD_STATE_KEY": KEY, **env}
        nodes = []
        for port in ports:
            command = [python, "-m", "mcpd", "serve", "--http", f"127.0.0.1:{port}", "--backplane",
                       backplane or server.url, *options, str(target)]  # fmt: skip
            nodes.append(NodeProcess(port, command, whole))
        for node in nodes:
            stack.callback(node.stop)
            node.start()
        for node in nodes:
            node.wait()
        found = Service(nodes, server)
        for name in proxies:
            found.proxies[name] = stack.enter_context(_proxy(name, folder, ports))
        yield found


async def speak_by_every_transport(
    port: int, host: str = "localhost", *, tls: ssl.SSLContext | None = None, token: str = ""
) -> None:
    """POST in both eras, an event stream and a WebSocket, each with an answer of the server `garden`."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    peers: list[Peer] = []

    async def ask(data: bytes) -> Peer:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=tls, server_hostname=host if tls is not None else None
        )
        peers.append(Peer(reader, writer))
        peers[-1].send(data.replace(b"Host: localhost", b"Host: " + host.encode()))
        return peers[-1]

    opened = await (await ask(post(initialize(), headers))).answer()
    assert (await (await ask(modern("tools/list", {}, headers))).answer()).status == 200
    fields = {**headers, "Accept": "text/event-stream", "Mcp-Session-Id": opened["mcp-session-id"]}
    stream = await ask(request("GET", "/mcp", fields.items()))
    assert (await stream.head())["content-type"] == "text/event-stream"
    for peer in peers:
        peer.abort()

    uri = f"{'ws' if tls is None else 'wss'}://{host}:{port}/mcp"
    async with connect(uri, host="127.0.0.1", port=port, ssl=tls, proxy=None, additional_headers=headers) as websocket:
        await websocket.send(json.dumps(initialize()))
        assert json.loads(await websocket.recv())["result"]["serverInfo"]["name"] == "garden"


def _certify(folder: Path) -> None:
    """A certificate of its own for mcp.example.com."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=mcp.example.com",
               "-addext", "subjectAltName=DNS:mcp.example.com", "-keyout", f"{folder}/privkey.pem",
               "-out", f"{folder}/fullchain.pem"]  # fmt: skip
    subprocess.run(command, check=True, timeout=TIMEOUT, stderr=subprocess.DEVNULL)


@contextmanager
def _proxy(name: str, folder: Path, ports: Sequence[int]) -> Iterator[int]:
    """A proxy before these ports; it has gone into the background once it listens, where its pid file finds it."""
    (own,) = free_ports(1)
    inside = Path(folder) / name
    inside.mkdir(parents=True)
    file = {"haproxy": "haproxy.cfg", "caddy": "Caddyfile"}.get(name, "nginx.conf")
    all_ports = [own, *ports]
    text = (DEPLOY / file).read_text()
    if name == "nginx-container":  # of which the nodes have names and are asked for again
        text = (DEPLOY / "container" / file).read_text().replace("listen 8080", "listen 127.0.0.1:8080")
        for number, node in enumerate(("one", "two"), 1):
            text = text.replace(f"server {node}:8080 resolve", f"server 127.0.0.1:808{number}")
    if name == "nginx-tls":  # on the port of the other, which gets one that nobody uses
        all_ports[:1] = free_ports(1)
        tls = (DEPLOY / "nginx-tls.conf").read_text().replace("listen 443", f"listen 127.0.0.1:{own}")
        text += re.sub(r"/etc/letsencrypt/live/[^/]*/(\w+\.pem)", rf"{inside}/\1", tls)
        _certify(inside)
    for number in range(len(all_ports), 4):
        text = "\n".join(line for line in text.split("\n") if f":808{number}" not in line)
    text = re.sub(r"(127\.0\.0\.1|http://):808(\d)", lambda found: f"{found[1]}:{all_ports[int(found[2])]}", text)
    pid = inside / "pid"
    env = {**os.environ, "HOME": str(inside), "XDG_DATA_HOME": str(inside), "XDG_CONFIG_HOME": str(inside)}
    if name == "caddy":
        command = ["caddy", "start", "--adapter", "caddyfile", "--pidfile", str(pid), "--config", str(inside / file)]
    elif name == "haproxy":
        command = ["haproxy", "-D", "-p", str(pid), "-f", str(inside / file)]
    else:
        for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
            text = f"{each}_temp_path {inside}/{each};\n{text}"
        text = f"pid {pid}; error_log {inside}/error.log; events {{}} http {{ access_log off;\n{text}}}"
        command = ["nginx", "-p", str(inside), "-e", f"{inside}/error.log", "-c", str(inside / file)]
    (inside / file).write_text(text)
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command, check=True, env=env, timeout=TIMEOUT, **quiet)
    try:
        yield own
    finally:
        os.kill(int(pid.read_text().split()[0]), signal.SIGTERM)
