"""Of what a program wrote before it ended the line that says why is shown, with what to do."""

from __future__ import annotations

import pytest

from mcpd.doctor.dialogue import ending, mending, telling_line

SYNTAX = ["mcpd: server.py cannot be imported: SyntaxError: invalid syntax (line 1)", "    def x(:", "          ^"]
NPM = [
    "npm error code E404",
    "npm error 404 Not Found - GET https://registry.example/@x%2fnothing - Not found",
    "npm error 404",
    "npm error 404  '@x/nothing@*' is not in this registry.",
    "npm error 404 Note that you can also install from a",
    "npm error 404 tarball, folder, http url, or git folder.",
    "npm error A complete log of this run can be found in: /x/debug-0.log",
]
DOCKER = ["docker: Error response from daemon: no such image", "", "Run 'docker run --help' for more information"]
TRACEBACK = ["Traceback (most recent call last):", '  File "x.py", line 2, in <module>', "KeyError: 'API_KEY'"]


@pytest.mark.parametrize(
    ("lines", "told", "advice"),
    [
        (SYNTAX, SYNTAX[0], "mend that, and try again"),
        (DOCKER, DOCKER[0], "mend that, and try again"),
        (TRACEBACK, TRACEBACK[2], "does it want the variable API_KEY? Give it by --env API_KEY=…"),
        (NPM, "is not in this registry", "npm knows no such package"),
        (["ModuleNotFoundError: No module named 'a.b'"], "a.b", "python -m pip install a"),
        (["mcpd: s.py cannot be imported: no module 'a' (line 1); install it"], "no module 'a'", "pip install a"),
        (["Error: Cannot find module '/x.js'"], "/x.js", "npm install"),
        (["bye"], "bye", "mend that, and try again"),
        (["^"], "^", "mend that, and try again"),
    ],
)
def test_the_line_that_says_why(lines: list[str], told: str, advice: str) -> None:
    assert told in telling_line(lines)
    assert advice in mending(lines, 1)


@pytest.mark.parametrize(
    ("code", "said"), [(0, "exit code 0"), (-11, "it crashed: SIGSEGV"), (-9, "SIGKILL"), (-200, "signal 200")]
)
def test_how_it_ended(code: int, said: str) -> None:
    assert ending(code) == said
    assert mending([], 0) != mending([], code or 1)
