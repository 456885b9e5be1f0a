"""Programs without extras, and options that need one more than http: the line that installs the extra is named.

The environment is a folder of links to mcpd's own dependencies, and Python started with -S sees no other packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SERVER = """
from mcpd import Server
server = Server("garden")

@server.tool
def water(bed: str) -> str:
    "Water a bed."
    return bed
"""


def _linked(name: str, folder: Path, found: set[str]) -> None:
    """Link the files of a distribution, and those of all that it requires without extras, into the folder."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    try:
        dist = distribution(name)
    except PackageNotFoundError:  # required by other Pythons or systems only
        return
    if name in found:
        return
    found.add(name)
    for top in {file.parts[0] for file in dist.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (folder / top).exists():
            (folder / top).symlink_to(Path(str(dist.locate_file(top))))
    for required in dist.requires or ():
        if "extra ==" not in required:
            _linked(re.split(r"[^A-Za-z0-9._-]", required)[0], folder, found)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a server; `site` has mcpd and what it requires, `http` what the extra of that name adds."""
    folder = tmp_path_factory.mktemp("bare")
    site, http = folder / "site", folder / "http"
    site.mkdir()
    http.mkdir()
    for name in ("anyio", "click", "msgspec", "websockets"):
        _linked(name, site, set())
    _linked("httptools", http, set())
    for name in ("assets", "mcpd"):
        (site / name).symlink_to(REPOSITORY / name)
    (folder / "server.py").write_text(SERVER, encoding="utf-8")
    return folder


def _python(bare: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MCPD_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-S", *words],
        cwd=bare,
        env=variables | {"PYTHONPATH": str(bare / "site"), "XDG_CONFIG_HOME": str(bare), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        ("--issuer https://idp.example.com", "auth"),
        ("--auth-server dev", "auth"),
        ("--backplane redis://127.0.0.1", "redis"),
    ],
)
def test_options_beside_http(bare: Path, options: str, extra: str) -> None:
    path = os.pathsep.join((str(bare / "site"), str(bare / "http")))
    words = ("serve", "server.py", "--http", "127.0.0.1:0", *options.split())
    done = _python(bare, "-m", "mcpd", *words, PYTHONPATH=path, MCPD_STATE_KEY="ab" * 32)
    assert done.returncode == 1
    assert f"pip install 'mcpd-server[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from mcpd.auth import Jwt", "auth"),
        ("from mcpd.auth import Introspection", "auth"),
        ("from mcpd.auth.server.login_server import LoginServer", "auth"),
        ("from mcpd.auth import StaticTokens; StaticTokens({}, dpop='accept')", "auth"),
        ("from fastmcp import FastMCP", "compat"),
        ("from mcp.server.fastmcp import FastMCP", "compat"),
        ("import mcpd.compat; mcpd.compat.install(); import fastmcp", "compat"),
        ("import mcpd; server = mcpd.Server('a', task_store='redis://127.0.0.1')", "redis"),
        ("import mcpd\n@mcpd.Server('a').tool(input_schema={'type': 'object'})\ndef a(given: dict): ...", "schema"),
    ],
)
def test_programs_name_the_extra(bare: Path, code: str, extra: str) -> None:
    (bare / "program.py").write_text(f"{code}\n", encoding="utf-8")
    done = _python(bare, "-m", "mcpd", "check", "program.py")
    assert done.returncode == 1, done.stderr
    assert f"pip install 'mcpd-server[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
