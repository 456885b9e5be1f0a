"""Agent frameworks load the tools of our servers and call them, and get what they get from FastMCP's.

Run by `make clients`. Each framework lives in an environment of its own; no model is asked: the tools are called as the
framework would call them with a model's answer. `functions.py` is served by mcpd and by FastMCP; where results are
to differ, `normal`, `TEXTS` and `NO_CONTENT` say so and why.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_type_hints

import pytest
from clients import functions
from conftest import REPOSITORY, Child

from mcpd import Client, McpdError, TextContent

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

HERE = Path(__file__).resolve().parent
TOOLS = REPOSITORY / ".tools"
SERVER = HERE / "serve_mcpd.py"
EVERYTHING = REPOSITORY / "conformance" / "everything.py"


class Framework(NamedTuple):
    """How its program is started, and what it cannot do, whoever serves the tools."""

    interpreter: Path
    script: Path
    without: frozenset[str] = frozenset()
    """The tools with which it cannot do anything."""
    tells_failures: bool = True
    """Whether it tells the text of a failed call from that of a result."""


def python(name: str, **more: Any) -> Framework:
    interpreter = TOOLS / "clients" / name / "bin" / "python"
    return Framework(interpreter, HERE / f"{name.replace('-', '_')}_client.py", **more)


def node(name: str) -> Framework:
    return Framework(TOOLS / "bin" / "node", HERE / "js" / f"{name}_client.mjs")


FRAMEWORKS = {
    # It gives a model the text of a failed call as it gives that of any other.
    "smolagents": python("smolagents", tells_failures=False),
    # It makes a class of each schema, and ends in RecursionError for one that holds itself.
    "llama-index": python("llama-index", without=frozenset({"depth", "grow"})),
    "langchain": python("langchain"),
    "openai-agents": python("openai-agents"),
    "pydantic-ai": python("pydantic-ai"),
    "fastmcp": python("fastmcp"),
    "ai_sdk": node("ai_sdk"),
    "langchainjs": node("langchainjs"),
    "mastra": node("mastra"),
}
# All of a framework in one process: what it says over stdio is asked for once.
each_framework = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in FRAMEWORKS]
)

Call = tuple[str, dict[str, Any]]


class Report(NamedTuple):
    """What a framework said: of each tool what it tells a model, of each call a result or an error."""

    tools: dict[str, Any]
    answers: list[dict[str, Any]]


def use(name: str, target: list[str], calls: list[Call]) -> Report:
    """Run a framework's program against a server: an address, or a command."""
    framework = FRAMEWORKS[name]
    is_there = framework.script.suffix == ".py" or (framework.script.parent / "node_modules").is_dir()
    if not (framework.interpreter.exists() and is_there):
        pytest.skip(f"needs the framework {name!r}: make clients installs it")
    done = subprocess.run(
        [framework.interpreter, framework.script, *target],
        input=json.dumps({"calls": calls, "without": sorted(framework.without)}),
        cwd=REPOSITORY, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{name} cannot load the tools:\n{done.stderr[-3000:]}"
    tools: dict[str, Any] = {}
    answers: list[dict[str, Any]] = [{"error": "no answer"} for _ in calls]
    for line in done.stdout.splitlines():
        record = json.loads(line)
        if "tool" in record:
            tools[record["tool"]] = record["facts"]
        else:
            answers[record["call"]] = record
    return Report(tools, answers)


def served(interpreter: str, file: Path) -> list[str]:
    """The command that serves a file over stdio."""
    return [interpreter, "-m", "mcpd", "serve", "--stdio", str(file)]


@functools.cache
def over_stdio(name: str, interpreter: str) -> Report:
    """What a framework says of the functions, served by us: of the calls, then of those that fail."""
    calls = [call for call in functions.CALLS if call[0] not in FRAMEWORKS[name].without]
    return use(name, served(interpreter, SERVER), [*calls, *functions.FAILING])


@contextmanager
def listening(command: list[str], env: dict[str, str]) -> Iterator[str]:
    """The address at which a server says that it listens."""
    server = subprocess.Popen(
        command, env=env, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    assert server.stdout is not None
    try:
        heard = b""
        while not (found := re.search(rb"(http://127\.0\.0\.1:\d+/\S*)\s", heard)):
            chunk = os.read(server.stdout.fileno(), 4096)
            assert chunk, f"the server ended without a word on where it listens: {heard.decode(errors='replace')}"
            heard += chunk
        yield found[1].decode()
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


@pytest.fixture(scope="session")
def fastmcp() -> Iterator[str]:
    """The functions, served by FastMCP."""
    interpreter = FRAMEWORKS["fastmcp"].interpreter
    if not interpreter.exists():
        pytest.skip("needs FastMCP: make clients installs it")
    with listening([str(interpreter), str(HERE / "serve_fastmcp.py")], dict(os.environ)) as url:
        yield url


# ------------------------------------------------------------------------------ what is the same

# Tools that give a text or nothing. FastMCP sends a text twice, as content and as structured content in an object; we
# send it once, as content, which is what every framework shows a model. Compared is what is said.
TEXTS = {tool.__name__ for tool in functions.TOOLS if get_type_hints(tool).get("return") in (str, NoneType, str | None)}
TEXTS |= {"slowly"}
# Where the two are to differ otherwise, and why; what is left of both is compared.
NO_CONTENT = {
    "empty": "of an empty list FastMCP says nothing, which smolagents takes for a failure; we say []",
}
MARKS = {"_meta", "meta", "wrap_result"}
STRUCTURED = {"structured", "structuredContent", "structured_content", "artifact", "data"}


def normal(value: Any) -> Any:
    """A result without those differences that are two ways to write the same.

    - JSON in a text: read, so that blanks and `0` for `0.0` do not count.
    - The one member "result" around a value: unwrapped. FastMCP has it for whatever is no object; we have it in the
      revisions that need it, as the newest one allows any value.
    - What says nothing: members that are null or false, and the marks by which a client knows its own server.
    """
    if isinstance(value, str):
        try:
            read = json.loads(value)
        except ValueError:
            return value
        return value if isinstance(read, str) else normal(read)
    if isinstance(value, dict):
        if set(value) == {"result"}:
            return normal(value["result"])
        kept = {key: normal(item) for key, item in value.items() if key not in MARKS}
        return {key: item for key, item in kept.items() if item is not None and item is not False}
    if isinstance(value, list):
        return [normal(item) for item in value if not (isinstance(item, dict) and item.get("type") == "mcp_meta")]
    return value


def said(value: Any) -> set[str]:
    """The texts of a result, in whatever form a framework has them."""
    if isinstance(value, str):
        read = normal(value)  # LangChain.js writes a block as JSON where something stands beside its text
        return said(read) if isinstance(read, dict) else {value}
    if isinstance(value, list):
        return {text for item in value for text in said(item)}
    if isinstance(value, dict):
        items = [
            item for key, item in value.items() if key not in {*STRUCTURED, *MARKS, "type", "source_type", "complaint"}
        ]
        return {text for item in items for text in said(item)}
    return set()


def without_content(value: Any) -> Any:
    return {key: item for key, item in value.items() if key in STRUCTURED} if isinstance(value, dict) else value


def difference(call: Call, ours: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    """What a framework got from us, if that is not what it got from FastMCP."""
    tool, arguments = call
    if "error" in theirs and "error" in ours:
        return None
    a, b = ours.get("result"), theirs.get("result")
    if tool in NO_CONTENT and "error" in theirs and "error" not in ours:
        return None
    if "error" not in ours and "error" not in theirs:
        if normal(a) == normal(b) or (tool in TEXTS and said(a) == said(b)):
            return None
        if tool in NO_CONTENT and normal(without_content(a)) == normal(without_content(b)):
            return None
    return f"{tool}({json.dumps(arguments)})\n    mcpd:    {json.dumps(ours)}\n    FastMCP: {json.dumps(theirs)}"


@each_framework
def test_it_gets_what_fastmcp_gives(name: str, fastmcp: str, child: Child) -> None:
    """Every tool is loaded and every call gives the same; what fails there fails here."""
    without = FRAMEWORKS[name].without
    calls = [call for call in functions.CALLS if call[0] not in without]
    ours = over_stdio(name, child.python)
    theirs = use(name, [fastmcp], [*calls, *functions.FAILING])
    assert set(ours.tools) == set(theirs.tools)
    assert {tool.__name__ for tool in functions.TOOLS} - without < set(ours.tools)
    assert [tool for tool in ours.tools if strict(theirs.tools[tool]) and not strict(ours.tools[tool])] == []
    pairs = list(zip(calls, ours.answers, theirs.answers, strict=False))
    found = [text for call, mine, other in pairs if (text := difference(call, mine, other))]
    assert not found, f"{len(found)} of {len(calls)} calls differ:\n" + "\n".join(found)
    failing = zip(functions.FAILING, ours.answers[len(calls) :], theirs.answers[len(calls) :], strict=True)
    went_well = [call for call, mine, other in failing if "error" in other and "error" not in mine]
    assert not (went_well and FRAMEWORKS[name].tells_failures)
    # The text of a tool's own error is the author's, word for word.
    assert "Refused: not today" in json.dumps(ours.answers[len(calls)])


def strict(facts: dict[str, Any]) -> bool:
    """Whether openai-agents could convert the schema to its strict mode; the others have no such thing."""
    return facts.get("strict") is True


@each_framework
def test_it_gets_over_http_what_it_gets_over_stdio(name: str, child: Child) -> None:
    calls = [call for call in functions.CALLS if call[0] not in FRAMEWORKS[name].without]
    with listening(child.mcpd("serve", "--http", "127.0.0.1:0", str(SERVER)), child.env) as url:
        here = use(name, [url], calls)
    there = over_stdio(name, child.python)
    assert here.tools == there.tools
    answers = there.answers[: len(calls)]
    assert [answer for answer in here.answers if "error" in answer] == [one for one in answers if "error" in one]
    assert normal(here.answers) == normal(answers)


# ------------------------------------------------------------------------------------ everything

NEEDED: dict[str, dict[str, Any]] = {
    "test_sampling": {"prompt": "Hello"},
    "test_elicitation": {"message": "Who are you?"},
    "test_trigger_resource_update": {"uri": "test://watched-resource"},
    "structured_object": {"city": "Paris"},
}
# What ends only when it is cancelled, and what changes the list that is being used.
NOT_CALLED = {"wait_for_ever", "test_trigger_tool_change"}


class Fixture(NamedTuple):
    """The tools of the fixture, the calls that come to an end, and the texts that our own client gets of them."""

    names: frozenset[str]
    calls: list[Call]
    texts: dict[str, str]


async def _through_our_client(command: list[str]) -> Fixture:
    texts: dict[str, str] = {}
    async with Client(command) as client:
        names = [tool.name for tool in await client.list_tools()]
        calls = [(tool, NEEDED.get(tool, {})) for tool in names if tool not in NOT_CALLED]
        for tool, arguments in calls:
            with contextlib.suppress(McpdError):
                result = await client.call_tool(tool, arguments)
                # A framework may have no room for one of the other types of content, and then refuses the result.
                if result.is_error or not all(isinstance(block, TextContent) for block in result.content):
                    continue
                for block in result.content[:1]:
                    texts[tool] = block.text  # type: ignore[union-attr]
    return Fixture(frozenset(names), calls, texts)


@functools.cache
def fixture(interpreter: str) -> Fixture:
    return asyncio.run(_through_our_client(served(interpreter, EVERYTHING)))


def holds(answer: Any, text: str) -> bool:
    """Whether a result has a text in it, or if that is JSON and the framework reads it, its value."""
    if json.dumps(text)[1:-1] in json.dumps(answer):
        return True
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict | list) and json.dumps(normal(value)) in json.dumps(normal(answer))


@each_framework
def test_every_tool_of_the_fixture_is_loaded_and_called(name: str, child: Child) -> None:
    """Also those that ask a client which cannot answer: each call comes to an end, as it does in our own client."""
    names, calls, texts = fixture(child.python)
    report = use(name, served(child.python, EVERYTHING), calls)
    assert set(report.tools) == names
    assert len(texts) > 10
    got = {tool: answer for (tool, _), answer in zip(calls, report.answers, strict=True)}
    assert not [tool for tool, answer in got.items() if answer.get("error") in ("no answer", "TimeoutError: ")]
    lost = {tool: got[tool] for tool, text in texts.items() if not holds(got[tool], text)}
    assert not lost
