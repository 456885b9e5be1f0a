"""The files of `deploy/` for service managers and containers: their command lines, variables, ports and paths are those
of a process that is started by them, and nothing in them is what a cautious operator would refuse."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from conftest import REPOSITORY, Child
from support.http_peer import Port, modern
from support.redis_server import NEEDS_REDIS, RedisServer
from support.service_stage import DEPLOY, NodeProcess, free_ports, missing, speak_by_every_transport

SERVER = "from mcpd import Server\nserver = Server('garden')\n"
UNIT = DEPLOY / "systemd" / "mcpd.service"
TOKEN = "0123456789abcdef" * 2


def settings(path: Path, section: str) -> list[tuple[str, str]]:
    """The lines of a section of a unit file, as name and value."""
    text = path.read_text().partition(f"[{section}]\n")[2].partition("\n[")[0]
    return [
        (line.partition("=")[0], line.partition("=")[2]) for line in text.splitlines() if "=" in line and line[0] != "#"
    ]


def container() -> dict[str, Any]:
    """What the Containerfile says last of each instruction; its ENV as a dict."""
    text = re.sub(r"\\\n\s*", " ", (DEPLOY / "container" / "Containerfile").read_text())
    lines = [line.partition(" ")[::2] for line in text.splitlines() if line and line[0] != "#"]
    found: dict[str, Any] = dict(lines)
    found["ENV"] = dict(
        word.partition("=")[::2] for name, value in lines if name == "ENV" for word in shlex.split(value)
    )
    found["FROM"] = [value for name, value in lines if name == "FROM"]
    found["RUN"] = [value for name, value in lines if name == "RUN"]
    return found


def manifests() -> dict[str, Any]:
    """What Kubernetes is told, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "mcpd.yaml").read_text())}


def compose() -> Any:
    return yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())


def resolved(text: str) -> str:
    """A value of Compose where no variable is set: what stands behind `:-`."""
    return re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", text)


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The variables that `mcpd serve --help-all` names."""
    done = subprocess.run(
        [sys.executable, "-m", "mcpd", "serve", "--help-all"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "120"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(re.findall(r"MCPD_[A-Z_]+", done.stdout))


@pytest.mark.medium
def test_each_variable_is_one_of_ours(known: set[str]) -> None:
    nodes = [compose()["services"][name]["environment"] for name in ("one", "two")]
    named = [container()["ENV"], *nodes, manifests()["ConfigMap"]["data"], manifests()["Secret"]["stringData"]]
    for variables in named:
        assert {name for name in variables if name.startswith("MCPD")} <= known, variables
    unit = UNIT.read_text() + (DEPLOY / "container" / "compose.yaml").read_text()
    assert set(re.findall(r"MCPD_[A-Z_]+", unit)) <= known | {"MCPD_VERSION"}


@asynccontextmanager
async def started(
    child: Child, folder: Path, arguments: list[str], variables: dict[str, str], **places: str
) -> AsyncIterator[Port]:
    """A process of exactly these arguments and variables, but for its port and `places` of this machine."""
    (folder / "server.py").write_text(SERVER)
    (port,) = free_ports(1)
    changed = {"/srv/server.py": str(folder / "server.py"), ":8080": f":{port}", **places}

    def here(text: str) -> str:
        for old, new in changed.items():
            text = text.replace(old, new)
        return text

    own = {name: here(value) for name, value in variables.items() if name.startswith("MCPD")}
    command = [child.python, "-m", *(here(word) for word in arguments)]
    node = NodeProcess(port, command, {**child.env, **own})
    node.start()
    try:
        await asyncio.to_thread(node.wait)
        listener: Any = SimpleNamespace(url=f"http://127.0.0.1:{port}/mcp", app=None)
        yield Port(listener)
    finally:
        await asyncio.to_thread(node.stop)


async def is_served(port: Port, *paths: str) -> None:
    """Its probes find it, who has the token is served by every transport, and nobody else."""
    for path in paths:
        probe = f"GET {path} HTTP/1.1\r\nHost: 10.1.2.3:8080\r\n\r\n".encode()
        assert (await port.ask(probe)).status == 200, path
    assert (await port.ask(modern("tools/list"))).status == 401
    await speak_by_every_transport(port.number, token=TOKEN)


@pytest.mark.slow
@NEEDS_REDIS
async def test_what_containers_run(child: Child, tmp_path: Path) -> None:
    """By Compose and by Kubernetes, each with its own variables over those of the image."""
    image, pod = container(), manifests()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    arguments = [*yaml.safe_load(image["ENTRYPOINT"]), *yaml.safe_load(image["CMD"])]
    assert arguments[:2] == ["mcpd", "serve"]
    assert not {"command", "args"} & set(pod)
    paths = {pod[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"/healthz", "/readyz"}
    assert {pod["ports"][0]["containerPort"], int(image["EXPOSE"])} == {8080}
    in_compose = {name: resolved(text) for name, text in compose()["services"]["one"]["environment"].items()}
    in_kubernetes = {**manifests()["ConfigMap"]["data"], **manifests()["Secret"]["stringData"]}
    with RedisServer() as redis:
        for variables in (in_compose, in_kubernetes):
            assert variables["MCPD_BACKPLANE"] == "redis://valkey:6379/0"
            secrets = {"MCPD_TOKEN": TOKEN, "MCPD_STATE_KEY": "a key for all of these"}
            whole = {**image["ENV"], **variables, **secrets}
            places = {"redis://valkey:6379/0": redis.url}
            async with started(child, tmp_path, arguments, whole, **places) as port:
                await is_served(port, *paths)
                check = image["HEALTHCHECK"].partition("CMD ")[2].replace(":8080", f":{port.number}")
                _, *words = yaml.safe_load(check)
                done = await asyncio.to_thread(subprocess.run, [child.python, *words], check=False)
                assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd is not installed")
async def test_what_systemd_runs(child: Child, tmp_path: Path) -> None:
    """With the socket that it hands over, and the token among its credentials."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    unit = dict(settings(UNIT, "Service"))
    assert dict(settings(UNIT.with_suffix(".socket"), "Socket"))["ListenStream"] == "127.0.0.1:8080"
    words = shlex.split(unit["ExecStart"])
    assert words[0] == "/opt/mcpd/bin/mcpd"
    (number,) = free_ports(1)
    places = {"${CREDENTIALS_DIRECTORY}": str(tmp_path), "/srv/mcpd": str(tmp_path)}
    for old, new in places.items():
        words = [word.replace(old, new) for word in words]
    command = ["systemd-socket-activate", "-l", f"0.0.0.0:{number}", "-E", "PYTHONPATH", child.python, "-m", "mcpd"]
    process = subprocess.Popen([*command, *words[1:]], env=child.env, stderr=subprocess.DEVNULL)
    try:
        listener: Any = SimpleNamespace(url=f"http://127.0.0.1:{number}/mcp", app=None)
        async with asyncio.timeout(60):
            while True:
                try:
                    await is_served(Port(listener), "/readyz")
                    break
                except ConnectionRefusedError:  # it does not listen yet
                    await asyncio.sleep(0)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    for path in UNIT.parent.iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/mcpd/bin/mcpd", "/bin/true"))
    units = [str(tmp_path / name) for name in ("mcpd.socket", "mcpd.service")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert not [line for line in done.stderr.splitlines() if "mcpd" in line], done.stderr
    secure = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", units[1]]
    done = subprocess.run(secure, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:]


@pytest.mark.skipif(bool(missing("caddy")), reason="caddy is not installed")
def test_caddy_finds_nothing_wrong(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path)}
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "Valid configuration" in done.stdout + done.stderr


def seconds(text: str) -> float:
    """Of a time as `40s`."""
    return float(text.removesuffix("s"))


def test_whoever_stops_a_process_gives_it_its_grace() -> None:
    """And a moment more for what is cancelled, in which the process ends whatever its tools do."""
    ending = 5.0
    image = container()
    assert image["STOPSIGNAL"] == "SIGTERM"
    unit = dict(settings(UNIT, "Service"))
    grace = float(re.search(r"--grace (\d+)", unit["ExecStart"])[1])  # type: ignore[index]
    assert float(unit["TimeoutStopSec"]) >= grace + ending
    for name in ("one", "two"):
        assert seconds(compose()["services"][name]["stop_grace_period"]) >= float(image["ENV"]["MCPD_GRACE"]) + ending
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    before = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = float(manifests()["ConfigMap"]["data"]["MCPD_GRACE"])
    assert pod["terminationGracePeriodSeconds"] >= before + grace + ending


def test_the_image_has_no_more_than_it_needs() -> None:
    image = container()
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]+( AS \w+)?", base) for base in image["FROM"]), "pinned by a tag"
    assert not any(":latest" in base for base in image["FROM"])
    assert image["USER"].split(":")[0] != "0"
    assert all(image[name].lstrip().startswith("[") for name in ("ENTRYPOINT", "CMD")), "no shell"
    assert "CMD [" in image["HEALTHCHECK"]
    assert "mcpd-server[http,redis,auth]==" in image["RUN"][0]
    assert "--no-cache-dir" in image["RUN"][0]
    assert not [name for name in image["ENV"] if "TOKEN" in name or "KEY" in name]


def test_how_many_nodes_there_are_is_said_once() -> None:
    """By the autoscaler: with `replicas` beside it each roll-out would end what it has added."""
    assert manifests()["HorizontalPodAutoscaler"]["spec"]["minReplicas"] == 3
    assert "replicas" not in manifests()["Deployment"]["spec"]


def test_nodes_in_containers_may_do_little() -> None:
    for name in ("one", "two"):
        node = compose()["services"][name]
        assert (node["read_only"], node["cap_drop"], node["init"]) == (True, ["ALL"], True)
        assert "ports" not in node, "only the proxy is reached from outside"
    valkey = compose()["services"]["valkey"]["command"]
    assert valkey[-2:] == ["--maxmemory-policy", "noeviction"]
    assert "ports" not in compose()["services"]["valkey"]

    spec = manifests()["Deployment"]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    inside = pod["containers"][0]["securityContext"]
    assert inside["readOnlyRootFilesystem"]
    assert not inside["allowPrivilegeEscalation"]
    labels = spec["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget", "Deployment"):
        selector = manifests()[kind]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == labels, kind


def test_the_proxy_of_compose_is_that_of_the_other_example() -> None:
    """But for the names of the nodes."""

    def lines(path: Path) -> Iterator[str]:
        for line in path.read_text().splitlines():
            stripped = line.strip()
            if stripped.startswith(("proxy_", "client_", "keepalive")):
                yield stripped

    ours = set(lines(DEPLOY / "container" / "nginx.conf"))
    assert set(lines(DEPLOY / "nginx.conf")) <= ours
    assert set(lines(DEPLOY / "nginx-tls.conf")) <= ours
    text = (DEPLOY / "container" / "nginx.conf").read_text()
    nodes = re.findall(r"server (\w+):8080 resolve ", text)
    assert nodes == ["one", "two"]
    # Without these two a node that is made anew, with another address, is not found.
    assert re.search(r"^resolver ", text, re.MULTILINE)
    assert re.search(r"^ +zone ", text, re.MULTILINE)
    assert tuple(
        map(int, compose()["services"]["proxy"]["image"].rpartition("nginx:")[2].split("-")[0].split("."))
    ) >= (1, 28)
    assert set(nodes) < set(compose()["services"])
