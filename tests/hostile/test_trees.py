"""Folders of people who mean harm, or have none, as processes serve them: reported, bounded, and nothing hangs."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from conftest import Child
from support.clock import turns
from support.folders import write
from support.wires import LEGACY, MODERN, process_wire

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="as POSIX has files")]

ODD = ["new\nline", "\u202egnp", "🌱", "per%2e%2ecent", "a b?#", "\udcff", "-", "..a"]

FILES: dict[str, str | bytes] = {
    "mcpd.toml": 'name = "tree"\n[tools]\nimport-timeout = 0.5\n',
    "tools/fine.py": "def fine(a: int) -> int:\n    return a\n",
    "tools/exits.py": "import sys\nsys.exit(3)\n",
    "tools/prints.py": (
        "import os, sys\nprint('{\"jsonrpc\": \"2.0\"}')\nos.write(1, b'garbage\\n')\nsys.stdout.flush()\n"
        "def prints() -> str:\n    print('more'); os.write(1, b'more\\n')\n    return 'p'\n"
    ),
    "tools/threads.py": (
        "import threading, time\n"
        "def _forever():\n    while True: time.sleep(60)\n"
        "threading.Thread(target=_forever, daemon=False, name='forever').start()\n"
    ),
    "tools/hangs.py": "while True:\n    pass\n",
    "prompts/fine.md": "Fine.",
    "resources/fine.md": "Fine.",
    "skills/fine/SKILL.md": "---\nname: fine\ndescription: Fine.\n---\nFine.\n",
}


def make(root: Path) -> Path:
    write(root, FILES)
    secret = root.parent / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    for kind, suffix in (("tools", ".py"), ("prompts", ".md"), ("resources", ".md"), ("skills/fine", ".md")):
        folder = root / kind
        for name in ODD:
            (folder / f"{name}{suffix}").write_bytes(b"\xff\0" if suffix == ".py" else b"odd")
        (folder / f"link{suffix}").symlink_to(secret)
        (folder / "all").symlink_to("/")
        os.mkfifo(folder / f"pipe{suffix}")
        (folder / f"locked{suffix}").write_text("locked", encoding="utf-8")
        (folder / f"locked{suffix}").chmod(0)
    for place in ("resources/huge.bin", "skills/huge.bin", "prompts/huge.md"):
        with open(root / place, "wb") as file:
            file.truncate(1 << 30)  # no byte of it is on the disk
    for place in ("resources/many", "skills/fine/many"):
        (root / place).mkdir()
    for number in range(100_000):
        os.close(os.open(root / ("resources/many" if number % 2 else "skills/fine/many") / f"{number}.txt", os.O_CREAT))
    return root


@pytest.mark.timeout(100)
async def test_a_tree_with_everything(tmp_path: Path, child: Child) -> None:
    root = make(tmp_path / "tree")
    async with process_wire(child, "--reload", str(root), version=LEGACY[-1]) as wire:
        tools = {tool["name"] for tool in (await wire.result("tools/list"))["tools"]}
        assert tools == {"fine", "prints"}
        assert await wire.text("fine", a=3) == "3"
        assert await wire.text("prints") == "p"
        page = await wire.result("resources/list")
        assert len(page["resources"]) == 1000
        assert "nextCursor" in page
        answer = await wire.request("resources/read", {"uri": "resource://tree/link.md"})
        assert "secret" not in str(answer["error"])
        assert (await wire.result("skills/list"))["skills"] == []  # it has too many files
        status = Path(f"/proc/{wire.process.pid}/status").read_text(encoding="utf-8")
        peak = int(status.partition("VmHWM:")[2].split()[0])
        assert peak < 300_000, f"{peak} kB"
        # The log thins what is alike: `mcpd check` names all of it.
        for said in ("exits.py, line 2: it exits on import", "hangs.py, line ", "link.py: is a link that leads out",
                     "pipe.py: is not a regular file"):  # fmt: skip
            await wire.said(said)
    assert wire.code == 0
    assert all(line.isprintable() for line in wire.stderr.splitlines())
    assert "secret" not in wire.stderr.replace("secret.txt", "")


async def test_what_ends_the_process_ends_it(tmp_path: Path, child: Child) -> None:
    """`os._exit` in a file that has changed: nothing runs after it. Its host sees the end, with that code."""
    write(tmp_path, {"tools/a.py": "def a() -> str:\n    return 'a'\n"})
    process = await asyncio.create_subprocess_exec(
        *child.mcpd("serve", "--stdio", "--reload", str(tmp_path)), env=child.env, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    await process.stdout.readline()
    write(tmp_path, {"tools/b.py": "import os\nos._exit(7)\n"})
    assert await asyncio.wait_for(process.wait(), 60) == 7
    process.stdin.close()


async def test_a_tree_that_grows_under_a_watch(tmp_path: Path, child: Child) -> None:
    """More folders than are watched, links round in circles, folders that come and go: the server answers."""
    write(tmp_path, {"tools/a.py": "def a() -> str:\n    return 'a'\n"})
    async with process_wire(child, "--reload", str(tmp_path), version=MODERN) as wire:
        assert await wire.text("a") == "a"
        for number in range(2100):
            (tmp_path / "tools" / f"d{number}").mkdir()
        (tmp_path / "tools" / "round").symlink_to(tmp_path / "tools")
        await wire.said("has more than 2000 folders")
        assert await wire.text("a") == "a"
        for number in range(2100):
            (tmp_path / "tools" / f"d{number}").rmdir()
        write(tmp_path, {"tools/b.py": "def b() -> str:\n    return 'b'\n"})
        async with asyncio.timeout(60):
            while "error" in await wire.request("tools/call", {"name": "b", "arguments": {}}):
                await turns(20)
    assert wire.code == 0
