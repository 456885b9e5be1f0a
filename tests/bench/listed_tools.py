"""What tags, rules and Apps cost `tools/list` of 1,000 tools: CPU time of the server, beside one that has none of them.

The ratio is to the bare server, and to the one with the same tags and no rule, whose answer has the same bytes.
Measured as `observed_calls.py` does: the servers take turns, and each round's share is that of neighbours in time.
"""

from __future__ import annotations

import argparse
import statistics

from observed_calls import LEGACY, MODERN, Peer

SERVER = """
from mcpd import Server
server = Server("list")

def numbered(number):
    async def tool(text: str, times: int = 1) -> str:
        return text
    tool.__name__ = f"tool{{number}}"
    tool.__doc__ = "Give a text back, so many times."
    return tool

for number in range({count}):
    server.tool({options})(numbered(number))
"""
TAGGED = """tags={"even" if number % 2 == 0 else "odd"}"""
RULE = """
@server.visibility
{kind} seen(entry, ctx):
    return "admin" not in {looked_at}
"""
APPS = """
server.app("ui://bench/page", "<!doctype html><title>A page</title><p>A page</p>")
"""
WITH_APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


def main() -> None:
    """Print milliseconds per list, and the ratio to the bare server's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--lists", type=int, default=10, help="in one round")
    parser.add_argument("--tools", type=int, default=1000)
    asked = parser.parse_args()
    tagged = SERVER.format(count=asked.tools, options=TAGGED)
    apps = APPS.join(SERVER.format(count=asked.tools, options=f'{TAGGED}, ui="ui://bench/page"').partition("\n\n")[::2])
    texts = {
        "bare": SERVER.format(count=asked.tools, options=""),
        "tags": tagged,
        "tags and an async rule": tagged + RULE.format(kind="async def", looked_at="entry.tags"),
        "tags and a plain rule": tagged + RULE.format(kind="def", looked_at="entry.tags"),
        "tags and a rule of names": tagged + RULE.format(kind="def", looked_at="entry.name"),
        "tags and Apps, to a host without": apps,
        "tags and Apps, to a host with Apps": apps,
        "tags, Apps and a plain rule": apps + RULE.format(kind="def", looked_at="entry.tags"),
    }
    for version in (LEGACY, MODERN):
        peers = {
            name: Peer(text, (), version, capabilities=None if "without" in name or "Apps" not in name else WITH_APPS)
            for name, text in texts.items()
        }
        found: dict[str, list[float]] = {name: [] for name in peers}
        for number in range(asked.rounds + 1):
            for name, peer in peers.items():
                before = peer.cpu_ns()
                peer.lists(asked.lists)
                if number:
                    found[name].append((peer.cpu_ns() - before) / asked.lists / 1e6)
        for peer in peers.values():
            peer.close()
        for name, took in found.items():
            same = "tags and Apps, to a host with Apps" if name == "tags, Apps and a plain rule" else "tags"
            bare, tags = (
                statistics.median(one / other for one, other in zip(took, found[base], strict=True))
                for base in ("bare", same)
            )
            print(
                f"{version}  {name:36} {statistics.median(took):7.3f} ms, least {min(took):7.3f}, {bare:.2f}x, "
                f"{tags:.2f}x of {same}"
            )


if __name__ == "__main__":
    main()
