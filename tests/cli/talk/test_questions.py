"""What a server may ask of the user, and what it may not."""

from __future__ import annotations

import pytest

from mcpd.cli.talk.questions import Questions
from mcpd.cli.talk.terminal import Terminal
from mcpd.errors import ProtocolError
from mcpd.protocol.types.interaction import ElicitUrlParams


class Answers(Terminal):
    """A terminal at which somebody says always the same."""

    def __init__(self, answer: str | None) -> None:
        super().__init__({})
        self.can_ask = True
        self.answer = answer
        self.asked: list[str] = []

    async def ask(self, prompt: str) -> str | None:
        self.asked.append(prompt)
        return self.answer


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: not found.append(url))
    return found


@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:alert(1)", "ftp://x.example/", ""])
async def test_only_web_pages_are_opened(url: str, opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Answers("yes")
    result = await Questions(terminal).url(ElicitUrlParams(message="Look.", url=url))
    assert result.action == "decline"
    assert (opened, terminal.asked) == ([], [])
    assert "which is not a web page; declined" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://evil.example\\@good.example/", "has characters that are not allowed in URLs"),
        ("https://good.example\t.evil.example/", "has characters that are not allowed in URLs"),
        ("https://x.example/\u202egro.doog", "has characters that are not allowed in URLs"),
        ("https:///evil.example/", "has no host"),
        ("https://[::1", "is not a URL"),
        ("https://x.example/" + "a" * 4000, "is too long to check (4018 characters)"),
    ],
)
async def test_a_page_that_cannot_be_shown_as_it_is_visited_is_not_opened(
    url: str, why: str, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Answers("yes")
    assert (await Questions(terminal).url(ElicitUrlParams(message="Look.", url=url))).action == "decline"
    assert (opened, terminal.asked) == ([], [])
    assert f"which {why}; declined" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://login.example/a", "login.example"),
        ("https://аpple.example/", "xn--pple-43d.example"),
        ("https://login.example@evil.example/", "evil.example"),
    ],
)
async def test_the_host_is_shown_as_it_is_looked_up(
    url: str, host: str, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (await Questions(Answers("no")).url(ElicitUrlParams(message="Look.", url=url))).action == "decline"
    assert f"  on the host {host}\n" in capsys.readouterr().err
    assert opened == []


@pytest.mark.parametrize("data", [None, {}, {"elicitations": []}, {"elicitations": [{"url": 3}]}])
async def test_pages_to_visit_first_that_are_none(data: object, opened: list[str]) -> None:
    assert not await Questions(Answers("yes")).visit(data)
    assert opened == []


@pytest.mark.parametrize(("answer", "is_visited"), [("yes", True), ("no", False), (None, False)])
async def test_pages_to_visit_first(answer: str | None, is_visited: bool, opened: list[str]) -> None:
    data = {"elicitations": [{"mode": "url", "message": "Log in.", "url": "https://x.example/", "elicitationId": "1"}]}
    assert await Questions(Answers(answer)).visit(data) is is_visited
    assert opened == (["https://x.example/"] if is_visited else [])


async def test_what_was_declined_unasked_ends_the_call_when_it_is_asked_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A server that wants an answer asks until it has one: 32 times in modern versions, and each was a line."""
    terminal = Answers(None)
    terminal.can_ask = False
    asker = Questions(terminal)
    page = ElicitUrlParams(message="Look.", url="https://x.example/")
    for params in (page, ElicitUrlParams(message="Another.", url="https://x.example/")):
        assert (await asker.url(params)).action == "decline"
    with pytest.raises(ProtocolError, match="this request was declined before, and there is no terminal"):
        await asker.url(page)
    said = capsys.readouterr().err
    assert said.count("declined, because there is no terminal to ask you on") == 2
