"""Server files with a PEP 723 header: served with what it asks for, in one process; what is said without it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from support.wires import MODERN, process_wire

UV = shutil.which("uv") or next(iter(map(str, (REPOSITORY / ".tools" / "uv" / "bin").glob("uv"))), None)

SERVER = """# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "tinydep @ file://{wheel}",
# ]
# ///
import os, sys
from mcpd import Server
from tinydep import WORD

server = Server("script")

@server.tool
def say() -> list[str]:
    return [WORD, str(os.getpid()), sys.prefix]
"""


def wheel(folder: Path) -> Path:
    """A package of one module, as a wheel: made without a build, installed without a registry."""
    path = folder / "tinydep-1.0-py3-none-any.whl"
    files = {
        "tinydep.py": "WORD = 'given'\n",
        "tinydep-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinydep\nVersion: 1.0\n",
        "tinydep-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        record = "".join(f"{name},,\n" for name in [*files, "tinydep-1.0.dist-info/RECORD"])
        archive.writestr("tinydep-1.0.dist-info/RECORD", record)
    return path


def serve(child: Child, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        child.mcpd("serve", "--stdio", *words), env={**child.env, **env}, capture_output=True, text=True, timeout=100,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


@pytest.mark.skipif(UV is None, reason="needs uv")
async def test_it_is_served_with_what_it_asks_for(tmp_path: Path, child: Child) -> None:
    """In the process that was started, which a signal ends; twice, as the second start has the environment already."""
    path = tmp_path / "server.py"
    path.write_text(SERVER.format(wheel=wheel(tmp_path)), encoding="utf-8")
    env = {"UV": str(UV), "UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        async with process_wire(child, str(path), version=MODERN, env=env) as wire:
            said: dict[str, Any] = await wire.call("say")
            word, pid, prefix = said["structuredContent"]
            assert (word, int(pid)) == ("given", wire.process.pid)
            assert prefix.startswith(str(tmp_path / "cache"))
        assert wire.code == 0
    async with process_wire(child, str(path), version=MODERN, env=env) as wire:
        os.kill(wire.process.pid, signal.SIGTERM)
        assert await wire.process.wait() == 0


@pytest.mark.skipif(UV is None, reason="needs uv")
def test_what_uv_cannot_give(tmp_path: Path, child: Child) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER.format(wheel=tmp_path / "none.whl"), encoding="utf-8")
    done = serve(child, str(path), UV=str(UV), UV_OFFLINE="1", UV_CACHE_DIR=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout) == (1, "")
    first, *rest = done.stderr.splitlines()
    assert first == f"mcpd: {path}: uv cannot give it what its header asks for:"
    assert any("none.whl" in line for line in rest)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ('dependencies = ["not-to-be-had>=1", "msgspec"]', "its header asks for not-to-be-had>=1; install uv"),
        ('requires-python = ">=3.99"', "its header asks for Python >=3.99, and mcpd runs on 3."),
        ("dependencies = [", "line 1: its # /// script is no TOML"),
        ("dependencies = 3", "is to be a list of texts"),
        ('dependencies = ["msgspec"]', "there is no server in it"),
        ("", "there is no server in it"),
    ],
)
def test_without_uv(tmp_path: Path, child: Child, header: str, said: str) -> None:
    """One line says what is missing; what is installed is enough."""
    path = tmp_path / "server.py"
    path.write_text(f"# /// script\n# {header}\n# ///\nx = 1\n", encoding="utf-8")
    home = {"PATH": "/none", "HOME": str(tmp_path), "UV": "/none/uv"}
    done = serve(child, str(path), **home)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_without_a_header_loads_nothing_for_it(child: Child, tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text("from mcpd import Server\nserver = Server('x')\n", encoding="utf-8")
    code = "import sys; from mcpd.cli import main\ntry: main()\nfinally: print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "--stdio", str(path)], env=child.env, capture_output=True, text=True,
        input="", timeout=100, check=False,
    )  # fmt: skip
    assert "'mcpd.cli.launch'" in done.stderr
    for name in ("script_environment", "reloading", "watchfiles", "sources.watch"):
        assert name not in done.stderr
