"""What a server may not read, or nobody can: it is named in a line, left out, and the rest of the folder is served."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from conftest import Child
from support.folders import write
from support.wires import MODERN, process_wire

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as Linux has files and rights")

FINE = {
    "tools/fine.py": "def fine() -> str:\n    'Fine.'\n    return 'fine'\n",
    "apps/page.html": "<!doctype html><title>x</title>",
    "resources/fine.md": "Fine.",
    "prompts/fine.md": "Fine.",
    "skills/fine/SKILL.md": "---\nname: fine\ndescription: Fine.\n---\nFine.\n",
    "docs/fine.md": "# Fine\n\nThis is findable.",
}
KINDS = {"tools": ".py", "apps": ".html", "resources": ".md", "prompts": ".md", "skills/fine": ".md", "docs": ".md"}

# Root reads everything by a right of its own; without that it is as all others.
AS_OTHERS = """#!{python}
import ctypes, os, sys
if os.geteuid() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    for right in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if libc.prctl(24, right, 0, 0, 0):  # PR_CAPBSET_DROP
            sys.exit("the right to read everything cannot be dropped")
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


def make(root: Path, kinds: Iterable[str]) -> Path:
    """A folder with all that cannot be read, in each of its kinds."""
    write(root, {path: text for path, text in FINE.items() if path.startswith(tuple(kinds))})
    for kind in kinds:
        folder, suffix = root / kind, KINDS[kind]
        (folder / f"locked{suffix}").write_text("locked", encoding="utf-8")
        (folder / f"locked{suffix}").chmod(0)
        (folder / "shut").mkdir()
        (folder / "shut" / f"inner{suffix}").write_text("inner", encoding="utf-8")
        (folder / "shut").chmod(0)
        (folder / f"broken{suffix}").symlink_to(folder / "nowhere")
        (folder / f"one{suffix}").symlink_to(f"other{suffix}")
        (folder / f"other{suffix}").symlink_to(f"one{suffix}")
        (folder / "round").symlink_to(folder)
        os.mkfifo(folder / f"pipe{suffix}")
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.getcwd()
            os.chdir(folder)  # its address is short
            try:
                listener.bind(f"socket{suffix}")
            finally:
                os.chdir(here)
        (folder / f"device{suffix}").symlink_to("/dev/zero")
        (folder / os.fsdecode(b"\xff" + suffix.encode())).write_bytes(b"\xff\0")
    return root


def without_rights(child: Child, folder: Path) -> Child:
    python = folder / "python"
    python.write_text(AS_OTHERS.format(python=child.python), encoding="utf-8")
    python.chmod(0o755)
    return Child(str(python), child.env)


def told(child: Child, root: Path) -> dict[str, str]:
    """What `mcpd check` says of each file."""
    done = subprocess.run(
        child.mcpd("check", "--json", str(root)), env=child.env, capture_output=True, text=True, timeout=100,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    said = json.loads(done.stdout)
    return {each["where"]: each["text"] for each in (*said["problems"], *said["warnings"])}


async def test_each_is_named_and_the_rest_is_served(tmp_path: Path, child: Child) -> None:
    other = without_rights(child, tmp_path)
    *first, docs = KINDS
    roots = make(tmp_path / "tree", first), make(tmp_path / "pages", [docs])
    found = {where: text for root in roots for where, text in told(other, root).items()}
    wanted = [f"{kind}/shut" for kind in KINDS]
    for kind, suffix in KINDS.items():
        names = ("locked", "broken", "one", "other", "pipe", "socket", "device")
        wanted += [f"{kind}/{name}{suffix}" for name in names]
    missing = [name for name in wanted if name not in found]
    assert not missing, "\n".join([*missing, "", *(f"{where}: {text}" for where, text in found.items())])
    assert all(where.isprintable() and text.isprintable() for where, text in found.items())

    async with process_wire(other, *map(str, roots), version=MODERN) as wire:
        assert await wire.text("tree_fine") == "fine"
        assert "findable" in str(await wire.call("pages_search_docs", query="findable"))
        uris = {each["uri"] for each in (await wire.result("resources/list"))["resources"]}
        assert {"resource://tree/fine.md", "docs://pages/fine.md", "skill://fine/SKILL.md"} <= uris
        assert not [uri for uri in uris if any(bad in uri for bad in ("locked", "broken", "pipe", "socket", "device"))]
        assert [each["name"] for each in (await wire.result("prompts/list"))["prompts"]] == ["tree_fine"]
        for uri in ("resource://tree/locked.md", "docs://pages/locked.md", "docs://pages/pipe.md"):
            assert "error" in await wire.request("resources/read", {"uri": uri})
    assert wire.code == 0
    assert "Traceback" not in wire.stderr
