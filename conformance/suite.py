"""The official conformance suite: runs its legs and counts blemishes. Of servers against
`everything_with_extensions.py` over HTTP, of clients against `client.py`, which it starts for each scenario.

A scenario is clean if it has neither a failure nor a warning; the suite's own exit code ignores warnings, so
the scores come from the `checks.json` it writes. Run by hand as `make conformance`; `--list` names the legs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# What the suite says of a client that waited as long as it was told to, and somewhat longer.
_LATE = "Client reconnected slightly late"

HERE = Path(__file__).resolve().parent
NEW = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
LATEST = "node_modules/conformance-latest/dist/index.js"


class Leg(NamedTuple):
    """One run of the suite: which package, its options, and how many scenarios it has.

    Those of `offered` are about what our server has: a check that is skipped there is a blemish.
    """

    package: str
    options: tuple[str, ...]
    scenarios: int
    offered: str = ""


# The requirements run the scenarios of tasks too, without scoring them. One of them always skips.
_TASKS = "tasks-(?!status-notifications)"

LEGS = {
    "2025-11-25": Leg(NEW, ("--suite", "all", "--spec-version", "2025-11-25"), 33),
    "2026-07-28": Leg(NEW, ("--suite", "all", "--spec-version", "2026-07-28"), 40),
    "requirements-2025-11-25": Leg(NEW, ("--requirements", "2025-11-25"), 33),
    "requirements-2026-07-28": Leg(NEW, ("--requirements", "2026-07-28"), 50, offered=_TASKS),
    "latest": Leg(LATEST, ("--suite", "all"), 32),
    "bare": Leg(NEW, ("--suite", "all"), 65, offered=f"sep-2640-|{_TASKS}"),
}


class ClientLeg(NamedTuple):
    """The same for clients, each scenario in a run of its own. A scenario of `refused` ends in a failure, rightly."""

    package: str
    options: tuple[str, ...]
    scenarios: int
    refused: str = ""


# The authorization server of 0.1.16 says there that it is another one than it is at, and RFC 8414 3.3 has such metadata
# refused: S26-173, AUTH-165. The suite's next release mended it.
_WRONG_ISSUER = "auth/2025-03-26-oauth-metadata-backcompat"


CLIENT_LEGS = {
    "client-2025-11-25": ClientLeg(NEW, ("--spec-version", "2025-11-25"), 19),
    "client-2026-07-28": ClientLeg(NEW, ("--spec-version", "2026-07-28"), 33),
    "client-latest": ClientLeg(LATEST, (), 26, refused=_WRONG_ISSUER),
    "client-bare": ClientLeg(NEW, (), 48),
}

AUTHORIZATION_LEG = "authorization"
AUTHORIZATION_SCENARIOS = 2


class Score(NamedTuple):
    """What a leg gave: its exit code, the scenarios that ran, and a line for each blemish."""

    code: int
    scenarios: int
    blemishes: list[str]
    output: str


def find_node(root: Path) -> str | None:
    """A Node that can run the suite (22 or newer): the one `make` fetched, else the machine's own."""
    for found in (root / ".tools" / "bin" / "node", shutil.which("node")):
        if found and Path(found).exists():
            version = subprocess.run([str(found), "--version"], capture_output=True, text=True, check=False).stdout
            if version.startswith("v") and int(version[1:].split(".")[0]) >= 22:
                return str(found)
    return None


@contextmanager
def everything(
    python: str = sys.executable, environment: dict[str, str] | None = None, options: tuple[str, ...] = ()
) -> Iterator[str]:
    """The fixture server on a free port of this machine; gives its URL and ends it afterwards."""
    with serving([*options, str(HERE / "everything_with_extensions.py")], python, environment) as url:
        yield url


@contextmanager
def mounted(how: str) -> Iterator[str]:
    """The fixture server behind a bridge over HTTP: its stdio, its URL, or its stdio in the legacy era only."""
    fixture = [str(HERE / "everything_with_extensions.py")]
    command = [sys.executable, "-m", "mcpd", "serve", "--stdio", "--log-level", "error", *fixture]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder}  # nothing is known of the server from an earlier start
        if how == "url":
            with everything() as url, serving([url], environment=environment) as bridge:
                yield bridge
        elif how == "stdio":
            with serving(["--", *command], environment=environment) as bridge:
                yield bridge
        else:
            front = Path(folder) / "front.py"
            lines = ("from mcpd import Server", 'server = Server("front")')
            mount = f'server.mount("up", {command!r}, prefix="", protocol="legacy", inherit_env=True)'
            front.write_text("\n".join((*lines, mount)), encoding="utf-8")
            with serving([str(front)], environment=environment) as bridge:
                yield bridge


@contextmanager
def serving(words: list[str], python: str = sys.executable, environment: dict[str, str] | None = None) -> Iterator[str]:
    """`mcpd serve` with these words on a free port of this machine; gives its URL and ends it afterwards."""
    command = [python, "-m", "mcpd", "serve", "--http", "127.0.0.1:0", "--log-level", "error", *words]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield _url(server)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        if server.stderr is not None:
            server.stderr.close()


def _url(server: subprocess.Popen[str]) -> str:
    """The address from the server's own announcement."""
    said = ""
    assert server.stderr is not None
    until = time.monotonic() + 30
    while time.monotonic() < until and select.select([server.stderr], [], [], 1) and server.poll() is None:
        said += server.stderr.readline()
        if found := re.search(r"http://[^\s]+/mcp", said):
            return found.group()
    raise RuntimeError(f"the fixture server did not say where it listens: {said}")


def run_authorization_leg(node: str, python: str = sys.executable) -> Score:
    """Run the scenarios of authorization servers against that of `mcpd serve --auth-server`, and score them.

    A user who allows everything stands beside.
    """
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (Path(folder) / "users.toml").touch()
        settings = Path(folder) / "auth.toml"
        client = f'[clients.suite]\nredirect-uris = ["http://127.0.0.1:{port}/callback"]\n'
        settings.write_text(f'[sign-in.users]\nfile = "users.toml"\n{client}', encoding="utf-8")
        add = [python, "-m", "mcpd", "auth", "add-user", "suite", "--file", str(Path(folder) / "users.toml")]
        subprocess.run(add, input="a password\n", text=True, capture_output=True, check=True)

        with everything(python, options=("--auth-server", str(settings))) as url:
            command = [
                node, str(HERE / NEW), "authorization", "--url", url.removesuffix("/mcp"), "--client-id", "suite",
                "--resource", url, "--port", str(port), "-o", folder,
            ]  # fmt: skip
            output = _approved(command, python)
        scenarios, blemishes = _checked(Path(folder), "authorization-server-")
    return Score(0, scenarios, blemishes, output)


def _approved(command: list[str], python: str) -> str:
    """Run a command that prints an address to be opened, and open it. Gives what it says."""
    environment = {**os.environ, "NO_COLOR": "1", "MCPD_LOGIN": "suite:a password"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as run:
        assert run.stdout is not None
        said = ""
        for line in run.stdout:
            said += line
            if line.startswith("http") and "/oauth/authorize?" in line:
                browser = [python, str(HERE / "approve.py"), line.strip()]
                subprocess.run(browser, env=environment, timeout=60, check=False)
    return said


def run_leg(node: str, leg: Leg, url: str) -> Score:
    """Run one leg against a server and score it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [node, str(HERE / leg.package), "server", "--url", url, *leg.options, "-o", folder]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "NO_COLOR": "1"}
        )
        scenarios, blemishes = _checked(Path(folder), "server-", leg.offered)
    return Score(done.returncode, scenarios, blemishes, done.stdout + done.stderr)


def _checked(folder: Path, prefix: str, offered: str = "") -> tuple[int, list[str]]:
    """How many scenarios the suite wrote down, and a line for each blemish."""
    scenarios, blemishes = 0, []
    for path in sorted(folder.rglob("checks.json")):
        scenarios += 1
        name = re.sub(r"-\d{4}-\d\d-\d\dT.*$", "", path.parent.name).removeprefix(prefix)
        for check in json.loads(path.read_text(encoding="utf-8")):
            is_blemish = check["status"] in ("FAILURE", "WARNING", "FAIL", "WARN")
            is_skipped = check["status"] in ("SKIPPED", "SKIP")
            is_blemish = is_blemish or (is_skipped and bool(offered and re.match(offered, name)))
            if is_blemish:
                blemishes.append(f"{name}: {check['status']} {check['id']}: {check.get('errorMessage') or ''}")
    return scenarios, blemishes


def run_client_leg(
    node: str, leg: ClientLeg, python: str = sys.executable, only: Collection[str] | None = None
) -> Score:
    """Run one leg with our client, or a few of its scenarios, and score it. One that looked at nothing is blemished."""
    package = str(HERE / leg.package)
    listed = subprocess.run(
        [node, package, "list", "--client", *leg.options], capture_output=True, text=True, check=True
    )
    names = re.findall(r"^  - (\S+)", listed.stdout, re.MULTILINE)
    names = [name for name in names if only is None or name in only]
    with ThreadPoolExecutor(2) as runs:
        scores = list(runs.map(lambda name: _run_client(node, leg, name, python), names))

    # A busy machine wakes a client late; the suite warns of it. Whoever is late by itself is late alone, too.
    for index, score in enumerate(scores):
        if score.blemishes and all(_LATE in blemish for blemish in score.blemishes):
            scores[index] = _run_client(node, leg, names[index], python)

    for index, name in enumerate(names):
        if name == leg.refused:
            unexpected = [] if scores[index].blemishes else [f"{name}: it was to be refused, and was not"]
            scores[index] = Score(0, 1, unexpected, scores[index].output)
    blemishes = [blemish for score in scores for blemish in score.blemishes]
    output = "\n".join(score.output for score in scores)
    return Score(max((score.code for score in scores), default=1), len(names), blemishes, output)


def _run_client(node: str, leg: ClientLeg, name: str, python: str) -> Score:
    with tempfile.TemporaryDirectory() as folder:
        client = shlex.join([python, str(HERE / "client.py")])
        command = [node, str(HERE / leg.package), "client", "--command", client, "--scenario", name]
        done = subprocess.run(
            [*command, *leg.options, "--timeout", "60000", "-o", folder],
            capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        checks = [
            check
            for path in Path(folder).rglob("checks.json")
            for check in json.loads(path.read_text(encoding="utf-8"))
        ]
    blemishes = [
        f"{name}: {check['status']} {check['id']}: {check.get('errorMessage') or ''}"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING", "FAIL", "WARN")
    ]
    if not any(check["status"] in ("SUCCESS", "PASS") for check in checks):
        blemishes.append(f"{name}: nothing was looked at")
    return Score(done.returncode, 1, blemishes, done.stdout + done.stderr)


def main() -> int:
    """Run the legs named on the command line, or all; exit 1 for any blemish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*LEGS, *CLIENT_LEGS, AUTHORIZATION_LEG]
    parser.add_argument("legs", nargs="*", choices=[*names, []], help=", ".join(names))
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(names))
        return 0
    node = find_node(HERE.parent)
    if node is None or not (HERE / NEW).exists():
        print("the suite needs Node 22 and its npm packages: run `make conformance`, which brings both")
        return 1
    failed = False
    with everything() as url:
        for name in options.legs or names:
            if name in LEGS:
                score, scenarios = run_leg(node, LEGS[name], url), LEGS[name].scenarios
            elif name in CLIENT_LEGS:
                score, scenarios = run_client_leg(node, CLIENT_LEGS[name]), CLIENT_LEGS[name].scenarios
            else:
                score, scenarios = run_authorization_leg(node), AUTHORIZATION_SCENARIOS
            failed = failed or bool(score.blemishes) or score.scenarios != scenarios
            print(f"{name}: {score.scenarios} of {scenarios} scenarios ran, {len(score.blemishes)} blemishes")
            for blemish in score.blemishes:
                print(f"  {blemish}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
