"""Tests wait for what happens, not for a while: the sleeps that remain, each with its reason. The list only shrinks.

`clock.py` has what there is instead: `Clock` moves time on, `turns` lets the loop run, `until` looks for what
nobody tells of. A sleep of a minute or more is a call that hangs, one of 0 a turn of the loop.
"""

from __future__ import annotations

import ast

__all__ = ["ALLOWED", "sleeps"]

_STALLED = "a process is to have come to a stop, which it does not tell"
_SLOW_ON_PURPOSE = "the time is what the test is about: somebody is slow, or leaves meanwhile"
_POLL = "looks at a process or a file, outside of any loop"
_REAL_TASKS = "a task is to wait for a timer, as calls do"

ALLOWED: dict[str, tuple[int, str]] = {
    "conformance/everything.py": (3, "the official suite asks for tools that take a while"),
    "tests/cli/test_serve_process.py": (2, _STALLED),
    "tests/server/dispatcher/test_tasks.py": (7, _REAL_TASKS),
    "tests/apps/host/test_official_view.py": (1, _SLOW_ON_PURPOSE),
    "tests/hostile/serving.py": (1, _POLL),
    "tests/hostile/soak.py": (1, "what has just been reset"),
    "tests/hostile/test_bad_servers.py": (1, _STALLED),
    "tests/hostile/test_cycles.py": (2, "nothing tells that a call which hung has been let go"),
    "tests/hostile/test_descriptors.py": (1, _STALLED),
    "tests/hostile/test_endings.py": (7, _STALLED),
    "tests/hostile/test_leaving.py": (2, _SLOW_ON_PURPOSE),
    "tests/server/http/test_event_stream.py": (1, _STALLED),
    "tests/server/http/test_faults.py": (1, "a second signal comes a while after the first"),
    "tests/server/http/test_hosted.py": (1, _POLL),
    "tests/server/http/test_many.py": (2, "the memory of a process settles, and its sessions expire"),
    "tests/server/http/test_processes.py": (1, "sessions of a process expire"),
    "tests/official/tap.py": (1, _POLL),
    "tests/support/browser.py": (1, _POLL),
    "tests/support/clock.py": (2, "the one place that looks again and again"),
    "tests/support/wires.py": (1, "looks at what a process has written, and whether it still does"),
    "tests/transports/test_apart.py": (1, "as long as the channel takes to look"),
    "tests/transports/test_stdio.py": (1, _STALLED),
    "tests/transports/test_websocket.py": (1, "a client of another library answers pings meanwhile"),
}


def sleeps(tree: ast.Module) -> int:
    """Calls of `sleep`, whoever's, for more than nothing and less than a minute."""
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and bool(node.args)
        and not (isinstance(seconds := node.args[0], ast.Constant) and not 0 < seconds.value < 60)
        for node in ast.walk(tree)
    )
