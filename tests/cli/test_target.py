"""TARGET: what can be served, and one line that says what to do for all else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from mcpd import Server
from mcpd.cli.target import load, split
from mcpd.errors import ConfigurationError

ONE_LINE = "from mcpd import Server; Server('one').run()"
ONE = 'from mcpd import Server\nserver = Server("one")\n'
TWO = 'from mcpd import Server\na = Server("a")\nb = Server("b")\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder; what is loaded from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(name: str, text: str) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("server.py", ("server.py", "")),
        ("server.py:make", ("server.py", "make")),
        ("a/b.py", ("a/b.py", "")),
        ("C:/a.py", ("C:/a.py", "")),
        ("package.module:server", ("package.module", "server")),
        ("package", ("package", "")),
    ],
)
def test_split(target: str, found: tuple[str, str]) -> None:
    assert split(target) == found


# --------------------------------------------------------------------------------- what is served


def test_nothing_is_the_starter() -> None:
    assert load(None).name == "mcpd"


def test_the_only_server_of_a_file() -> None:
    assert load(write("one.py", ONE)).name == "one"


def test_one_of_several() -> None:
    write("two.py", TWO)
    assert load("two.py:b").name == "b"


def test_the_one_called_server_is_preferred() -> None:
    assert load(write("three.py", TWO + 'server = Server("main")\n')).name == "main"


def test_one_server_under_two_names_is_one() -> None:
    assert load(write("alias.py", ONE + "app = server\n")).name == "one"


def test_a_function_that_makes_one() -> None:
    write("factory.py", 'from mcpd import Server\ndef make():\n    return Server("made")\n')
    assert load("factory.py:make").name == "made"


def test_a_module_of_the_current_folder() -> None:
    write("garden/__init__.py", "")
    write("garden/tools.py", ONE)
    assert load("garden.tools:server").name == "one"


def test_a_file_finds_its_neighbours() -> None:
    write("shed/spade.py", "NAME = 'spade'\n")
    assert (
        load(write("shed/main.py", "from mcpd import Server\nimport spade\nserver = Server(spade.NAME)\n")).name
        == "spade"
    )


def test_a_file_named_like_a_module_that_is_loaded() -> None:
    """json.py of the user does not stand in for Python's own."""
    import json

    assert load(write("json.py", ONE)).name == "one"
    assert sys.modules["json"] is json


def test_a_guarded_run_is_not_called() -> None:
    assert load(write("guarded.py", ONE + 'if __name__ == "__main__":\n    server.run()\n')).name == "one"


# --------------------------------------------------------------------------------- what is not


@pytest.mark.parametrize(
    ("target", "text", "said"),
    [
        ("nosuch.py", None, "nosuch.py: no such file in "),
        ("nosuch", None, "nosuch: no such file, folder or module"),
        ("mcp-server-nosuch", None, "mcp-server-nosuch: no such file, folder or module; if it is the command"),
        ("no such", None, "no such: no such file, folder or module"),
        ("stdio", None, "stdio: no such file; to choose the transport, write --stdio"),
        ("notes.txt", "hello", "notes.txt is not a Python file; name a file that ends with .py"),
        ("notes.txt:server", "hello", "notes.txt is not a Python file; name a file that ends with .py"),
        ("json.decodr:JSON", None, "no module 'json.decodr' in "),
        ("empty.py", "", 'empty.py: it has no server; make one with server = mcpd.Server("name")'),
        ("main.py", f"def main():\n    {ONE_LINE}\n", "main.py: it has no server, only main(); let "),
        ("main.py:main", f"def main():\n    {ONE_LINE}\n", "the function calls run() of server 'one'; return "),
        ("main.py:run", f"def run():\n    {ONE_LINE}\n", "the function calls run() of server 'one'; return "),
        ("two.py", TWO, "two.py: its servers are a, b; name one, for example two.py:a"),
        ("two.py:c", TWO, "two.py: c is neither a Server nor a function that returns one; its servers are a, b"),
        ("one.py:Server", ONE, "one.py: Server() failed: TypeError: "),
        ("one.py:fail", ONE + "def fail():\n    1 / 0\n", "one.py: fail() failed: ZeroDivisionError: division"),
        ("one.py:fail", ONE + "def fail():\n    import nosuch\n", "one.py: fail() failed: no module 'nosuch' (line 4)"),
        ("one.py:leave", ONE + "def leave():\n    raise SystemExit(3)\n", "one.py exited in leave() (exit code 3)"),
        ("one.py:make", ONE + "async def make(): ...\n", "one.py: make is async; write it as a plain function"),
        ("fails.py", "x = 1\ny = {}['key']\n", "fails.py cannot be imported: KeyError: 'key' (line 2)"),
        ("group.py", "raise ExceptionGroup('a', [KeyError('b')])\n", "group.py cannot be imported: KeyError: 'b'"),
        ("silent.py", "raise ValueError\n", "silent.py cannot be imported: ValueError (line 1)"),
        ("needs.py", "import nosuch.at_all\n", "needs.py cannot be imported: no module 'nosuch' (line 1); install it"),
        (
            "needs.py",
            "import dotenv.at_all\n",
            "needs.py cannot be imported: no module 'dotenv"
            f"{'' if find_spec('dotenv') is None else '.at_all'}' (line 1); "
            f"install it where mcpd runs: {sys.executable} -m pip install python-dotenv",
        ),
        ("leaves.py", "raise SystemExit(3)\n", "leaves.py exited while it was imported (exit code 3)"),
        ("leaves.py", "raise SystemExit\n", "leaves.py exited while it was imported (exit code 0)"),
        (
            "version.py",
            "import importlib.metadata\nimportlib.metadata.version('fastmcp')\n",
            "version.py cannot be imported: it reads the version of fastmcp, which is not installed (line 2); catch",
        ),
        (
            "inside.py",
            "from . import other\n",
            "inside.py cannot be imported: ImportError: attempted relative import with no known parent package "
            "(line 1); the file is part of a package: run mcpd in the folder that contains the package, with ",
        ),
        ("bad.py", ONE + "@server.tool\ndef f(*names): ...\n", "bad.py: "),
        ("runs.py", ONE + "server.run()\n", "the file of server 'one' calls run() while it is imported; put that call"),
        ("nosuch.module:server", None, "no module 'nosuch' in "),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_said_in_one_line(target: str, text: str | None, said: str) -> None:
    if text is not None:
        write(split(target)[0], text)
    with pytest.raises(ConfigurationError) as caught:
        load(target)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_folder(here: Path) -> None:
    (here / "folder").mkdir()
    write("folder/server.py", ONE)
    with pytest.raises(ConfigurationError, match=f"; name a file in it, such as folder{os.sep}server.py$"):
        load("folder")
    with pytest.raises(ConfigurationError, match="^my-folder is a folder, which has no objects; write only my-folder"):
        (here / "my-folder").mkdir()
        load("my-folder:server")
    write("folder/tools/a.py", "def a() -> str:\n    return ''\n")
    assert [entry.key for entry in load("folder").catalog.tools] == ["a"]


def test_the_nearest_file_is_suggested() -> None:
    write("weather_server.py", ONE)
    with pytest.raises(ConfigurationError, match=r"wether_server\.py: no such file; did you mean weather_server\.py\?"):
        load("wether_server.py")


def test_a_module_with_a_broken_import_is_not_missing_itself() -> None:
    write("broken/__init__.py", "")
    write("broken/tools.py", "import no_such_thing\n")
    with pytest.raises(ConfigurationError, match=r"broken\.tools cannot be imported: no module 'no_such_thing'"):
        load("broken.tools:server")


def test_what_went_wrong_is_kept_as_the_cause() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(write("fails.py", "1 / 0\n"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_run_works_again_after_loading() -> None:
    before = Server.run
    load(write("one.py", ONE))
    assert Server.run is before


@pytest.mark.parametrize(
    ("target", "text", "said"),
    [
        (
            "shed/main.py",
            "\n\nx = (1,\n",
            "shed/main.py cannot be imported: SyntaxError: '(' was never closed ({}, line 3)",
        ),
        (
            "shed/main.py",
            "\n1 / 0\n",
            "shed/main.py cannot be imported: ZeroDivisionError: division by zero ({}, line 2)",
        ),
        ("shed/main.py", "import no_such\n", "shed/main.py cannot be imported: no module 'no_such' ({}, line 1)"),
        (
            "shed.main:server",
            "\n1 / 0\n",
            "shed.main cannot be imported: ZeroDivisionError: division by zero ({}, line 2)",
        ),
    ],
)
def test_the_file_is_named_that_failed(
    monkeypatch: pytest.MonkeyPatch, here: Path, target: str, text: str, said: str
) -> None:
    """A line number alone is one of the file that was named."""
    monkeypatch.syspath_prepend(here / "shed")
    write("shed/main.py", "import mcpd\nimport broken_spade\n")
    helper = write("shed/broken_spade.py", text)
    with pytest.raises(ConfigurationError) as caught:
        load(target)
    assert str(caught.value).startswith(said.format(helper.replace("/", os.sep)))


def test_code_of_others_is_not_where_it_failed() -> None:
    write("own.py", "import json\n\njson.loads('{')\n")
    with pytest.raises(ConfigurationError, match=r"\(line 3\)$"):
        load("own.py")


# ------------------------------------------------------------- those who come from other libraries


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from mcpd import FastMCP\n", "cannot import name 'FastMCP' from 'mcpd' (line 1); the class is Server"),
        ("from mcpd import Image\n", 'a tool returns image(path), or image(data, "image/png")'),
        ("from mcpd import Contxt\n", "(line 1); did you mean Context?"),
        ("from mcpd import Field\n", "import it from pydantic: from pydantic import Field"),
        ("import mcpd\nserver = mcpd.FastMCP('a')\n", "(line 2); the class is Server"),
        (
            "from mcpd import Server\nServer('a', port=1)\n",
            "(line 2); set the address when you serve: mcpd ",
        ),
        ("from mcpd import Server\nServer('a', instuctions='b')\n", "(line 2); did you mean instructions?"),
        (
            "from mcpd import Server\nServer('a', tags={'b'})\n",
            "(line 2); tags belong to tools, resources and prompts",
        ),
        ("from mcpd import Server\nServer('a').custom_route('/b')\n", "(line 2); write @server.route("),
        ("from mcpd import Server\nServer('a').http_app\nServer('a').add_middleware(1)", "; write server.middleware("),
        ("from mcpd import Server\nServer('a').streamable_http_app()\n", "(line 2); server.asgi_app() is an ASGI appl"),
        ("from mcpd import Resolve\n", "(line 1); the name is Depends"),
        ("from mcpd import Server\nServer('a', include_tags={'b'})\n", "; write server.enable(tags=…, only=True)"),
        ("from mcpd import Server\nServer('a').promt(print)\n", "(line 2); did you mean prompt?"),
    ],
)
def test_a_name_of_another_library_says_what_to_write(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(write("ported.py", text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "__init__.py" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("fastmcp", "mcpd replaces FastMCP: leave out --no-compat"),
        ("mcp.server.fastmcp", "mcpd replaces the official SDK: leave out --no-compat"),
    ],
)
def test_a_file_for_another_library_is_no_reason_to_install_that(
    module: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)  # as if it were not installed
    with pytest.raises(ConfigurationError, match=said) as caught:
        load(write("theirs.py", f"from {module} import FastMCP\nmcp = FastMCP('a')\n"))
    assert "pip install" not in str(caught.value)


def test_a_server_of_another_library_is_named(here: Path) -> None:
    write("fastmcp.py", "class FastMCP:\n    def run(self): ...\n")
    with pytest.raises(
        ConfigurationError, match="theirs.py: mcp is a server of FastMCP, which cannot be served with --no"
    ):
        load(write("theirs.py", "from fastmcp import FastMCP\nmcp = FastMCP()\n"))


def test_a_name_without_its_ending() -> None:
    write("one.py", ONE)
    with pytest.raises(ConfigurationError, match=r"one: no such file; did you mean one\.py\?"):
        load("one")


def test_a_relative_path_from_elsewhere_says_where_it_was_looked_for(here: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"server.py: no such file in {here}; write the absolute path"):
        load("server.py")
    with pytest.raises(ConfigurationError, match=r"server.py: no such file; only a shell expands ~, so write /"):
        load("~/server.py")
    with pytest.raises(ConfigurationError, match=r"^/nowhere/server.py: no such file$"):
        load("/nowhere/server.py")
