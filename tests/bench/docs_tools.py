"""A folder with very many documents over stdio: the first lists, indexing, searches as a host sees them, and memory.

`python tests/bench/docs_tools.py [--pages N] [--searches N]`. The pages are made of words with the frequencies that
words of a language have, so that searches find some, many or most of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


class Host:
    """A host's end of `mcpd serve --stdio`."""

    def __init__(self, folder: Path, cache: Path) -> None:
        env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mcpd", "serve", "--stdio", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
        )  # fmt: skip
        self._number = 0

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """The result of a request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        while (answer := json.loads(self.process.stdout.readline())).get("id") != self._number:
            pass
        return answer["result"]

    def search(self, query: str) -> Any:
        """What the search finds."""
        result = self.ask("tools/call", {"name": "search_docs", "arguments": {"query": query}})
        assert not result.get("isError"), result
        return result["structuredContent"]

    def rss(self) -> float:
        """MiB that it has in memory now."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    def since(self) -> float:
        """Seconds since it was started."""
        return time.perf_counter() - self.began


def main() -> None:
    """Makes the pages, and prints what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--searches", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        chance = random.Random(1)
        words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(20_000)]
        weights = [1 / (rank + 5) for rank in range(len(words))]
        for number in range(options.pages):
            folder = root / "served" / "docs" / f"s{number % 40:02}"
            folder.mkdir(parents=True, exist_ok=True)
            text = chance.choices(words, weights, k=200)
            parts = (f"# {' '.join(text[:4])}", " ".join(text[:100]), f"## {text[7]} {text[9]}", " ".join(text[100:]))
            (folder / f"p{number}.md").write_text("\n\n".join(parts), encoding="utf-8")
        for start in ("cold", "warm"):
            measure(Host(root / "served", root / "cache"), start, options.searches, chance, words, weights)


def measure(
    host: Host, start: str, searches: int, chance: random.Random, words: list[str], weights: list[float]
) -> None:
    """One life of a server."""
    host.ask("initialize", HELLO)
    print(f"{start}: first answer after {host.since():.2f} s")
    page = host.ask("resources/list")
    print(f"{start}: first list after {host.since():.2f} s, RSS {host.rss():.0f} MiB")
    listed = len(page["resources"])
    while "nextCursor" in page:
        page = host.ask("resources/list", {"cursor": page["nextCursor"]})
        listed += len(page["resources"])
    print(f"{start}: all {listed} listed after {host.since():.2f} s, RSS {host.rss():.0f} MiB")
    while "progress" in host.search(words[40]):
        pass
    print(f"{start}: indexed after {host.since():.1f} s, RSS {host.rss():.0f} MiB")
    took = []
    for _ in range(searches):
        query = " ".join(chance.choices(words, weights, k=chance.randint(1, 3)))
        began = time.perf_counter()
        host.search(query)
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    print(
        f"{start}: searches p50 {statistics.median(took):.1f} ms, p99 {took[len(took) * 99 // 100]:.1f} ms, "
        f"most {took[-1]:.0f} ms; RSS {host.rss():.0f} MiB"
    )
    assert host.process.stdin is not None
    host.process.stdin.close()
    host.process.wait(timeout=60)


if __name__ == "__main__":
    main()
