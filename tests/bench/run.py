"""mcpd against the raw floors, in one interleaved run: `make bench`, or `make bench BENCH_ARGS="--suites stdio"`.

The harness, its floors and its load generator are those of ../shared/bench; the floors run in this project's
own environment, or in that of another Python: `--python ENVIRONMENT/bin/python`, one into which `.[all]` was
installed. The load generator stays in this one's. Prints each round and then the tables; ratios are against the floor
of that row, in the same Python.
With BENCH_ENV naming an environment made by the harness's own set-up script, the peers run too (--peers).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT.parent / "shared" / "bench"
FLOORS = {
    "cold": ["floor-stdio"],
    "stdio": ["floor-stdio", "floor-eager", "floor-task"],
    "rss": ["floor-stdio"],
    "list": ["floor-stdio"],
    "read": ["floor-stdio", "floor-uvicorn"],
    "http": ["floor-uvicorn"],
    "ws": ["floor-ws-websockets", "floor-ws-sansio"],
}
PEERS = ["mcp-high", "mcp-low", "mcp-high-json-fast", "fastmcp", "ts"]

MCPD = """
[[server]]
id = "mcpd"
label = "mcpd"
kind = "own"
cwd = "{root}"
stdio = ["{python}", "-m", "mcpd", "serve", "--log-level", "warning", "--stdio", "{server}"]
stdio_modern = true
ws = ["{python}", "-m", "mcpd", "serve", "--log-level", "warning", "--ws", "127.0.0.1:{{port}}", "{server}"]
ws_path = "/mcp"
http = ["{python}", "-m", "mcpd", "serve", "--log-level", "warning", "--http", "127.0.0.1:{{port}}", "{server}"]
http_modes = ["2025-11-25", "2026-07-28"]
import = "mcpd.server"
env = {{ BENCH_COMMON = "{common}" }}
"""


def main() -> int:
    """Run the harness with a configuration made for this checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", default="cold,stdio,rss,list,ws,http", help="comma separated: %(default)s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine, in all")
    parser.add_argument("--peers", action="store_true", help="measure the peers too; needs BENCH_ENV")
    parser.add_argument("--python", type=Path, help="another Python, of an environment, for mcpd and the floors")
    options = parser.parse_args()
    if options.python and options.peers:
        parser.error("peers have Pythons of their own, so --python goes without --peers")
    python = (options.python or ROOT / ".venv" / "bin" / "python").absolute()
    if not (python.parent.parent / "bin" / "python").exists():
        parser.error(f"{python} is no bin/python of an environment")
    if not HARNESS.is_dir():
        print("make bench needs the harness in ../shared/bench, which this checkout does not have beside it")
        return 1
    wanted = [server for suite in options.suites.split(",") for server in FLOORS.get(suite, [])]
    servers = [*dict.fromkeys(wanted), "mcpd", *(PEERS if options.peers else [])]
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        environment = None if options.python else os.environ.get("BENCH_ENV")
        if not environment:
            (scratch / "floor").symlink_to(python.parent.parent)
        config = _config(Path(environment or scratch), python)
        (scratch / "servers.toml").write_text(config, encoding="utf-8")
        result = scratch / "result.json"
        command = [sys.executable, str(HARNESS / "bench.py"), "run", "--config", str(scratch / "servers.toml")]
        command += ["--suites", options.suites, "--servers", ",".join(servers), "--rounds", str(options.rounds)]
        command += ["--patience", str(options.patience), "--no-import", "--out", str(result)]
        # The harness takes a BENCH_ENV that it finds for the floors' place, whatever the configuration says.
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "BENCH_ENV": environment or str(scratch)}
        done = subprocess.run(command, env=env, check=False)
        if result.exists():
            print(f"\nmcpd: {_version(python)}", flush=True)
            print(f"floors: {_version(Path(environment or scratch) / 'floor' / 'bin' / 'python')}", flush=True)
            report = [sys.executable, str(HARNESS / "bench.py"), "report", str(result)]
            subprocess.run([*report, "--config", str(scratch / "servers.toml")], check=False)
    return done.returncode


def _version(python: Path) -> str:
    """What this Python says of itself, with its compiler, which is half of a difference between two of them."""
    asked = [python, "-c", "import platform as p; print('Python', p.python_version(), 'of', p.python_compiler())"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def _config(environment: Path, python: Path) -> str:
    """The harness's own servers, started from `environment`, and mcpd from this checkout."""
    text = (HARNESS / "servers.toml").read_text(encoding="utf-8")
    text = text.replace(tomllib.loads(text)["env_root"], str(environment), 1)
    # The fastest peer is measured in sessions too, which the harness leaves out.
    head, fastest, rest = text.partition('id = "mcp-high-json-fast"')
    text = head + fastest + rest.replace('http_modes = ["2026-07-28"]', 'http_modes = ["2025-11-25", "2026-07-28"]', 1)
    server = ROOT / "tests" / "bench" / "bench_server.py"
    return text + MCPD.format(python=python, root=ROOT, server=server, common=HARNESS / "servers")


if __name__ == "__main__":
    sys.exit(main())
