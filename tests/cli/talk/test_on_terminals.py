"""The commands that ask a server, on a terminal: what is asked, what is shown, and what never reaches it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import REPOSITORY, Child
from support.pseudo_terminal import Typed

SERVER = str(REPOSITORY / "tests" / "support" / "talk_server.py")
NOT_OURS = ("COLUMNS", "LINES", "TMUX", "TERM_PROGRAM", "LC_TERMINAL", "KITTY_WINDOW_ID")
Start = Callable[..., Typed]

pytestmark = pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals")


@pytest.fixture
def start(child: Child, tmp_path: Path) -> Start:
    """start("call", SERVER, "plant"): the process, on a terminal; `env` is added to its environment."""

    def begin(*words: str, env: dict[str, str] | None = None, columns: int = 100) -> Typed:
        plain = {name: value for name, value in child.env.items() if name not in NOT_OURS}
        return Typed(child.mcpd(*words), {**plain, **(env or {})}, tmp_path, columns)

    return begin


def test_missing_arguments_are_asked_for(start: Start) -> None:
    with start("call", SERVER, "plant", "rows=2") as typed:
        typed.until("Name of the bed.\nbed (string): ")
        typed.type("south\r")
        typed.until("  1) spring\n  2) autumn\nseason: ")
        typed.type("winter\r")
        typed.until("season: 'winter' is not one of these; write a value or its number")
        typed.type("2\r")
        assert typed.end() == 0
        assert typed.text.endswith('{"name":"south","plants":["autumn","autumn"]}\n')


def test_all_arguments_are_asked_for_with_their_defaults(start: Start) -> None:
    with start("call", SERVER, "plant", "--ask", "bed=north", "season=spring") as typed:
        typed.until("How many rows.\nrows (integer, 1 to 12, optional) [1]: ")
        typed.type("13\r")
        typed.until("must be 1 to 12")
        typed.type("x\r")
        typed.until("rows: 'x' is not of type integer")
        typed.type("\r")
        typed.until("what (string[]|null, optional): ")
        typed.type('["pea"]\r')
        assert typed.end() == 0
        assert '{"name":"north","plants":["pea"]}' in typed.text


def test_ctrl_d_gives_up(start: Start) -> None:
    with start("call", SERVER, "plant") as typed:
        typed.until("bed (string): ")
        typed.type("\x04")
        assert typed.end() == 2
        assert "mcpd: plant needs bed=…" in typed.text


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_form_is_asked_for(start: Start, version: str) -> None:
    with start("call", SERVER, "water", "minutes=3", "--protocol", version) as typed:
        typed.until(
            "A talk asks: Water for 3 minutes?\\x1b[2J\n  mcpd: think twice\n"
            "Press Ctrl-D to decline.\nreally (yes or no): "
        )
        typed.type("maybe\r")
        typed.until("really: 'maybe' is not of type boolean; write true or false")
        typed.type("yes\r")
        typed.until("Who says so.\nname (string, at least 2 characters, optional) [nobody]: ")
        typed.type("\r")
        typed.until("size (optional) [small]: ")
        typed.type("2\r")
        assert typed.end() == 0
        assert "accept Sure(really=True, name='nobody', size='large')" in typed.text
        assert "\x1b[2J" not in typed.raw


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_form_is_declined(start: Start, version: str) -> None:
    with start("call", SERVER, "water", "minutes=3", "--protocol", version) as typed:
        typed.until("really (yes or no): ")
        typed.type("\x04")
        assert typed.end() == 0
        assert typed.text.endswith("mcpd: declined\ndecline\n")


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_page_is_opened_only_if_the_user_says_so(start: Start, version: str, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/opened\n')
    browser.chmod(0o700)
    env = {"BROWSER": f"{browser} %s"}
    with start("call", SERVER, "pay", "--protocol", version, env=env) as typed:
        typed.until("A talk asks you to visit a page: Pay first.")
        typed.until(
            "  https://xn--bcher-kva.example/pay\n  on the host xn--bcher-kva.example\nOpen it? (yes or no) [no]: "
        )
        typed.type("\r")
        assert typed.end() == 0
        assert typed.text.endswith("decline\n")
    assert not (tmp_path / "opened").exists()

    with start("call", SERVER, "pay", "--protocol", version, env=env) as typed:
        typed.until("Open it?")
        typed.type("yes\r")
        assert typed.end() == 0
        assert typed.text.endswith("accept\n")
    assert (tmp_path / "opened").read_text() == "https://xn--bcher-kva.example/pay\n"


def test_a_page_that_has_to_be_visited_first(start: Start) -> None:
    with start("call", SERVER, "visit", "--protocol", "2025-11-25", env={"BROWSER": "true %s"}) as typed:
        typed.until("Open it?")
        typed.type("y\r")
        typed.until("Press Enter when you are done: ")
        typed.type("\r")
        assert typed.end() == 0
        assert typed.text.endswith("visited\n")


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_the_user_answers_for_a_model(start: Start, version: str) -> None:
    with start("call", SERVER, "think", "--protocol", version) as typed:
        typed.until(
            "A talk asks for the answer of a model; there is no model here, but you may answer.\n  user: What now?"
        )
        typed.until("> ")
        typed.type("Wait.\r")
        typed.type("And see.\r\r")
        assert typed.end() == 0
        assert typed.text.endswith("a person at the terminal: Wait.\nAnd see.\n")


def test_what_does_not_print_never_reaches_a_terminal(start: Start) -> None:
    for words in (
        ["call", SERVER, "hostile"],
        ["read", SERVER, "talk://hostile"],
        ["call", SERVER, "hostile", "--json"],
    ):
        with start(*words, env={"NO_COLOR": "1"}) as typed:
            assert typed.end() == 0
            assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", typed.raw.replace("\r\n", "\n")) is None
            assert "owned" in typed.raw
    assert "\\u001b]0;owned" in typed.raw


def test_what_the_process_of_a_server_prints_commands_no_terminal(start: Start) -> None:
    with start("call", SERVER, "die", env={"NO_COLOR": "1"}) as typed:
        assert typed.end() == 1
        assert typed.text.startswith("last words\\x1b[2J\nmcpd: ")
        assert "\x1b" not in typed.raw


def test_colours_only_where_they_are_wanted(start: Start) -> None:
    for env, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        with start("list", SERVER, "prompts", env=env) as typed:
            assert typed.end() == 0
            assert ("\x1b[1mplan\x1b[0m" in typed.raw) is is_coloured
            assert ("\x1b" in typed.raw) is is_coloured


def test_a_narrow_terminal(start: Start) -> None:
    with start("list", SERVER, "tools", columns=60) as typed:
        assert typed.end() == 0
    lines = typed.text.splitlines()
    assert [line for line in lines if len(line) > 60] == []
    at = lines.index("  plant")
    assert lines[at + 1] == "      bed: string, season: spring|autumn, rows: integer = 1,"


def test_a_bar_shows_how_far_a_call_is_and_goes(start: Start) -> None:
    with start("call", SERVER, "steps", "count=4") as typed:
        assert typed.end() == 0
        assert "[######------------------]  25% step 1\\x1b[2J" in typed.raw
        assert typed.raw.endswith("\r\x1b[Kdone\r\n")


def test_ctrl_c_cancels_the_call(start: Start) -> None:
    with start("call", SERVER, "hang") as typed:
        typed.until("50% half")
        typed.type("\x03")
        assert typed.end() == 130
        assert "cancelled at the server" in typed.text
        assert "Traceback" not in typed.text


def test_ctrl_c_while_asking(start: Start) -> None:
    with start("call", SERVER, "plant") as typed:
        typed.until("bed (string): ")
        typed.type("\x03")
        assert typed.end() == 130


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        ({"KITTY_WINDOW_ID": "1"}, "\x1b_Gf=100,a=T,m=0;iVBORw0KGgo"),
        ({"TERM_PROGRAM": "iTerm.app"}, "\x1b]1337;File=inline=1;size="),
    ],
)
def test_images_are_shown_where_the_terminal_can(start: Start, env: dict[str, str], shown: str, tmp_path: Path) -> None:
    with start("call", SERVER, "dot", env=env) as typed:
        assert typed.end() == 0
        assert shown in typed.raw
    assert list(tmp_path.iterdir()) == []


def test_elsewhere_images_are_saved(start: Start, tmp_path: Path) -> None:
    with start("call", SERVER, "dot", env={"TMUX": "x", "KITTY_WINDOW_ID": "1"}) as typed:
        assert typed.end() == 0
        assert "image/png, 67 bytes: saved as dot.png" in typed.text
    assert [path.name for path in tmp_path.iterdir()] == ["dot.png"]


def test_arguments_of_prompts_are_asked_for(start: Start) -> None:
    with start("prompt", SERVER, "plan") as typed:
        typed.until("season: ")
        typed.type("spring\r")
        assert typed.end() == 0
        assert "[user]\nPlan spring.\n[assistant]\nBeans.\n" in typed.text
