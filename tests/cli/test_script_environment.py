"""Server files with a PEP 723 header: served with what it asks for, in one process; what is said without it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from support.wires import MODERN, process_wire

from mcpd.cli.scripts import Header, _as_script, _cache_folder, _find_uv

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


TOOL = """# /// script
# dependencies = ["{needs}"]
# ///
import {imports}

def {name}() -> str:
    "What it is given."
    return {imports}.WORD
"""


def wheel(folder: Path, name: str = "tinydep") -> Path:
    """A package of one module, as a wheel: made without a build, installed without a registry."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    files = {
        f"{name}.py": "WORD = 'given'\n",
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        record = "".join(f"{file},,\n" for file in [*files, f"{name}-1.0.dist-info/RECORD"])
        archive.writestr(f"{name}-1.0.dist-info/RECORD", record)
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
    assert first == f"mcpd: {path}: uv cannot install the requirements of its header:"
    assert any("none.whl" in line for line in rest)
    assert "Traceback" not in done.stderr


def offline(folder: Path) -> dict[str, str]:
    """The variables of a start with uv, and with caches of its own."""
    return {"UV": str(UV), "UV_OFFLINE": "1", "UV_CACHE_DIR": str(folder / "uv"), "XDG_CACHE_HOME": str(folder / "xdg")}


def mcpd(child: Child, *words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        child.mcpd(*words), env={**child.env, **env}, capture_output=True, text=True, timeout=100, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.skipif(UV is None, reason="needs uv")
def test_all_commands_that_load_a_file(tmp_path: Path, child: Child) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER.format(wheel=wheel(tmp_path)), encoding="utf-8")
    env = offline(tmp_path)
    checked = mcpd(child, "check", "--json", str(path), env=env)
    assert [tool["name"] for tool in json.loads(checked.stdout)["tools"]] == ["say"], checked.stderr
    called = mcpd(child, "call", str(path), "say", env=env)
    assert "given" in called.stdout, called.stderr
    tried = mcpd(child, "doctor", str(path), env=env)
    assert "✓ tools               1" in tried.stdout, tried.stdout


@pytest.mark.skipif(UV is None, reason="needs uv")
async def test_one_file_of_a_folder_is_served_with_what_it_asks_for(tmp_path: Path, child: Child) -> None:
    tools = tmp_path / "folder" / "tools"
    tools.mkdir(parents=True)
    more = f"moredep @ file://{wheel(tmp_path, 'moredep')}"
    (tools / "first.py").write_text(TOOL.format(needs=more, imports="moredep", name="more"), encoding="utf-8")
    (tools / "second.py").write_text("# /// script\n# dependencies = [\n# ///\n", encoding="utf-8")
    (tools / "third.py").write_text("def plain() -> str:\n    'Plain.'\n    return 'plain'\n", encoding="utf-8")
    folder = str(tmp_path / "folder")
    async with process_wire(child, folder, version=MODERN, env=offline(tmp_path)) as wire:
        for tool, said in (("more", "given"), ("plain", "plain")):
            assert said in str(await wire.call(tool))
    checked = mcpd(child, "check", folder, env=offline(tmp_path))
    assert "second.py: line 1: its # /// script is not TOML" in checked.stderr
    (tools / "first.py").write_text(TOOL.format(needs="none-such==1", imports="none", name="none"), encoding="utf-8")
    checked = mcpd(child, "check", folder, env=offline(tmp_path))
    assert "first.py: uv cannot install" in checked.stderr
    assert "none-such" in checked.stderr


def test_several_files_with_headers(tmp_path: Path, child: Child) -> None:
    """They have no environment together: what is not installed is named, with the two things to do."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, needs in (("one", "tinydep==1"), ("two", "tinydep==2"), ("three", "msgspec")):
        text = TOOL.format(needs=needs, imports=re.match("[a-z]+", needs)[0], name=name)  # type: ignore[index]
        (tools / f"{name}.py").write_text(text, encoding="utf-8")
    env = offline(tmp_path)
    checked = mcpd(child, "check", str(tmp_path), env=env)
    assert "three" in checked.stdout
    for name, needs in (("one", "tinydep==1"), ("two", "tinydep==2")):
        assert f"{name}.py: its header requires {needs}; serve the file alone, with uv installed," in checked.stderr
    done = mcpd(child, "serve", "--stdio", str(tools / "one.py"), str(tools / "two.py"), env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"mcpd: {tools}/one.py: its header requires tinydep==1; serve the file alone, with uv installed, or"
    )
    assert done.stderr.count("\n") == 1


OTHER_PYTHON = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$1 $2" in
"python find") echo {folder}/other/bin/python;;
esac
"""


async def test_another_python(tmp_path: Path, child: Child) -> None:
    """Where the header asks for one that does not run here, uv is asked for it, with what mcpd needs there."""
    path, uv = tmp_path / "server.py", tmp_path / "uv"
    header = '# /// script\n# requires-python = ">=3.99"\n# [tool.uv.sources]\n# near = {path = "../near"}\n# ///\n'
    code = SERVER.partition("# ///\n")[2].replace("from tinydep import WORD", "WORD = 'other'")
    path.write_text(header + code, encoding="utf-8")
    uv.write_text(OTHER_PYTHON.format(folder=tmp_path), encoding="utf-8")
    uv.chmod(0o755)
    # It has nothing installed but what mcpd needs, and mcpd itself is not among that.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True, timeout=60)
    (site,) = (tmp_path / "other" / "lib").glob("python*/site-packages")
    for name in ("msgspec", "anyio", "idna", "typing_extensions"):
        place = find_spec(name)
        assert place is not None
        assert place.origin is not None
        source = Path(place.origin)
        source = source.parent if source.name == "__init__.py" else source
        (site / source.name).symlink_to(source)

    env = {"UV": str(uv), "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    async with process_wire(child, str(path), version=MODERN, env=env) as wire:
        said: dict[str, Any] = await wire.call("say")
        word, pid, prefix = said["structuredContent"]
    assert (word, int(pid), prefix) == ("other", wire.process.pid, str(tmp_path / "other"))
    sync, _ = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert "--python" not in sync
    (script,) = (tmp_path / "xdg" / "mcpd" / "scripts").glob("*.py")
    asked = script.read_text(encoding="utf-8")
    assert all(f'"{name}' in asked for name in ("anyio", "click", "msgspec", "websockets"))
    assert '"pytest' not in asked
    assert '# requires-python = ">=3.99,>=3.11"' in asked
    assert f'path = "{tmp_path}/../near"' in asked


def test_uv_has_no_such_python(tmp_path: Path, child: Child) -> None:
    path, uv = tmp_path / "server.py", tmp_path / "uv"
    path.write_text('# /// script\n# requires-python = ">=3.99"\n# ///\n', encoding="utf-8")
    uv.write_text("#!/bin/sh\necho 'error: No interpreter found for Python >=3.99' >&2\nexit 2\n", encoding="utf-8")
    uv.chmod(0o755)
    done = serve(child, str(path), UV=str(uv), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "its header requires Python >=3.99, mcpd runs on 3." in done.stderr
    assert "install one with uv python install" in done.stderr


def test_settings_of_uv_hold_elsewhere(tmp_path: Path) -> None:
    uv = {"sources": {"x": {"path": "x"}}, "find-links": ["./a"], "prerelease": "allow"}
    text = _as_script(Header(str(tmp_path / "one.py"), ("x",), ">=3.12", uv), ["y"])
    table = tomllib.loads("\n".join(line[2:] for line in text.splitlines()[1:-1]))
    assert (table["requires-python"], table["dependencies"]) == (">=3.12,>=3.11", ["x", "y"])
    assert table["tool"]["uv"] == {
        "sources": {"x": {"path": str(tmp_path / "x")}}, "find-links": [str(tmp_path / "a")], "prerelease": "allow"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ('dependencies = ["not-to-be-had>=1", "msgspec"]', "its header requires not-to-be-had>=1; install uv"),
        ('requires-python = ">=3.99"', "its header requires Python >=3.99, but mcpd runs on 3."),
        ("dependencies = [", "line 1: its # /// script is not TOML"),
        ("dependencies = 3", "must be a list of strings"),
        ('dependencies = ["msgspec"]', "it has no server"),
        ("", "it has no server"),
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
    for name in ("script_environment", "script_headers", "cli.uv", "reloading", "watchfiles", "sources.watch"):
        assert name not in done.stderr


def test_a_user_without_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers with a user of any number: `~` is then no folder, and above all not one of that name here."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for name, value in (("HOME", None), ("XDG_CACHE_HOME", None), ("UV", None), ("PATH", str(tmp_path))):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    planted = tmp_path / "~" / ".local" / "bin" / "uv"
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    assert _find_uv() is None
    folder = _cache_folder()
    assert os.path.isabs(folder)
    assert not (tmp_path / "~" / ".cache").exists()
    shutil.rmtree(folder)
