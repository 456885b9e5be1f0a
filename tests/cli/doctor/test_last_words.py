"""Of what a program wrote before it ended the line that says why is shown, with what to do."""

from __future__ import annotations

import pytest

from mcpd.cli.doctor.dialogue import advice_for_ending, describe_ending, explaining_line

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
        (SYNTAX, SYNTAX[0], "fix the error on stderr, and try again"),
        (DOCKER, DOCKER[0], "fix the error on stderr, and try again"),
        (TRACEBACK, TRACEBACK[2], "does it need the variable API_KEY? Set it with --env API_KEY=…"),
        (NPM, "is not in this registry", "npm does not have this package"),
        (["ModuleNotFoundError: No module named 'a.b'"], "a.b", "python -m pip install a"),
        (["mcpd: s.py cannot be imported: no module 'a' (line 1); install it"], "no module 'a'", "pip install a"),
        (["Error: Cannot find module '/x.js'"], "/x.js", "npm install"),
        (["bye"], "bye", "fix the error on stderr, and try again"),
        (["^"], "^", "fix the error on stderr, and try again"),
    ],
)
def test_the_line_that_says_why(lines: list[str], told: str, advice: str) -> None:
    assert told in explaining_line(lines)
    assert advice in advice_for_ending(lines, 1)


@pytest.mark.parametrize(
    ("code", "said"), [(0, "exit code 0"), (-11, "it crashed: SIGSEGV"), (-9, "SIGKILL"), (-200, "signal 200")]
)
def test_how_it_ended(code: int, said: str) -> None:
    assert describe_ending(code) == said
    assert advice_for_ending([], 0) != advice_for_ending([], code or 1)
