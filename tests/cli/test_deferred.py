"""What `mcpd serve` loads no sooner than it is used is there when it is used, and for everybody else as ever."""

from __future__ import annotations

import asyncio
import os
import subprocess
import typing
from pathlib import Path
from typing import Any

import pytest
import typing_extensions
from conftest import Child
from support.wires import LEGACY, process_wire

from mcpd.cli import _is_stdio_alone

# A tool that has a TLS client and a TLS server of its own, by asyncio alone.
TLS_SERVER = """
import asyncio, sys
from mcpd import Server

server = Server("tls")
loaded_before = "ssl" in sys.modules
CERTIFICATE = {path!r}

@server.tool
async def encrypted() -> list[str]:
    import ssl

    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(CERTIFICATE)

    async def answer(reader, writer):
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=inside) as listening:
        port = listening.sockets[0].getsockname()[1]
        trusting = ssl.create_default_context(cafile=CERTIFICATE)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.write(b"hello\\n")
        said = await reader.read()
        version = writer.get_extra_info("ssl_object").version()
        writer.close()
    return [said.decode(), version, str(loaded_before)]
"""

# In a process of its own: what the command loads, then what each module's names are.
SAME = """
import sys
from mcpd.cli.deferred import _not_needed, load_libraries

names = [name for name, _ in _not_needed()]
assert "ssl" in names and not set(names) & set(sys.modules), set(names) & set(sys.modules)
load_libraries()
assert not set(names) & set(sys.modules), "a stand-in stayed, or the real one was loaded"

import asyncio, msgspec, socket, uuid
base, events = asyncio.base_events, asyncio.unix_events
holders = {
    "asyncio.sslproto": base, "asyncio.staggered": base, "ssl": base, "subprocess": events,
    "array": socket, "platform": uuid,  # newer Pythons import them when they use them
}
assert set(names) == {*holders, "typing_extensions"}

import array, asyncio.sslproto, asyncio.staggered, platform, ssl, subprocess
import typing_extensions
for name, holder in holders.items():
    real, attribute = sys.modules[name], name.rpartition(".")[2]
    if not hasattr(holder, attribute):
        continue
    stand_in = getattr(holder, attribute)
    assert stand_in is not real, name
    for each in vars(real):
        if not each.startswith("__") and (name, each) != ("platform", "system"):
            assert getattr(stand_in, each) == getattr(real, each), (name, each)
    try:
        stand_in.there_is_no_such_name
    except AttributeError:
        pass
    else:
        raise AssertionError(name)
    assert getattr(holder, attribute) is real, f"{name}: the stand-in stayed after its first use"
assert asyncio.sslproto is sys.modules["asyncio.sslproto"]

# What others put into a module later is seen.
marker = ssl.SSLContext = type("Other", (ssl.SSLContext,), {})
assert asyncio.base_events.ssl.SSLContext is marker
load_libraries()
assert sys.modules["ssl"] is ssl
"""

# Each line in a process of its own: what is done to a module by way of asyncio is done to that module.
THROUGH_A_STAND_IN = [
    "asyncio.base_events.subprocess.Popen = 5; import subprocess; assert subprocess.Popen == 5",
    "del asyncio.base_events.ssl.SSLContext; import ssl; assert not hasattr(ssl, 'SSLContext')",
    "asyncio.sslproto.SSLProtocol = 5; import asyncio.sslproto; assert asyncio.sslproto.SSLProtocol == 5",
    "assert {'SSLContext', 'CERT_NONE'} <= set(dir(asyncio.base_events.ssl))",
    "from asyncio import sslproto; sslproto.SSLProtocol; from asyncio import sslproto as again; "
    "import asyncio.sslproto; assert again is sys.modules['asyncio.sslproto'] is asyncio.base_events.sslproto",
    "from unittest import mock\n"
    "with mock.patch('asyncio.base_events.subprocess.Popen', 5):\n"
    "    import subprocess; assert subprocess.Popen == 5\n"
    "assert subprocess.Popen != 5",
]

HINTS = """
import sys
if sys.argv[1:] == ["deferred"]:
    from mcpd.cli.deferred import load_libraries
    load_libraries()
import dataclasses, typing, msgspec, typing_extensions

class Old(typing.TypedDict, total=False):
    a: typing.Required[int]
    b: str

class New(typing_extensions.TypedDict):
    a: int
    b: typing_extensions.NotRequired[typing_extensions.ReadOnly[str]]

@dataclasses.dataclass
class Plain:
    '''Words
        that are indented.'''
    x: typing.Annotated[int, msgspec.Meta(ge=1)]
    y: "list[Old]"

class Struct(msgspec.Struct):
    '''Words
        that are indented.'''
    old: Old

schemas = []
for kind in (Old, Plain, Struct, New):
    try:
        schemas.append(msgspec.json.schema(kind))
    except Exception as error:
        schemas.append(repr(error))
print(schemas)
"""


async def test_a_tool_of_a_server_on_stdio_speaks_tls(child: Child, tmp_path: Path) -> None:
    path = tmp_path / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", f"{path}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    (tmp_path / "tls.py").write_text(TLS_SERVER.format(path=str(path)), encoding="utf-8")
    async with process_wire(child, str(tmp_path / "tls.py"), version=LEGACY[-1]) as wire:
        answer = await wire.answer(wire.ask("tools/call", {"name": "encrypted"}))
    assert answer["result"]["structuredContent"]["result"] == ["hello\n", "TLSv1.3", "False"]


def run(child: Child, code: str, *arguments: str) -> str:
    env = {name: value for name, value in child.env.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [child.python, "-W", "error", "-c", code, *arguments],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everybody_else_has_the_real_modules(child: Child) -> None:
    run(child, SAME)


@pytest.mark.parametrize("code", THROUGH_A_STAND_IN)
def test_what_is_done_to_a_stand_in_is_done_to_the_module(child: Child, code: str) -> None:
    run(child, f"import sys; from mcpd.cli.deferred import load_libraries; load_libraries(); import asyncio\n{code}")


def test_msgspec_reads_the_same_types(child: Child) -> None:
    plain = run(child, HINTS)
    assert "that are indented" in plain
    assert run(child, HINTS, "deferred") == plain


def test_names_that_are_given_at_once_are_the_real_ones() -> None:
    assert typing_extensions.Required is typing.Required
    assert typing_extensions.NotRequired is typing.NotRequired


SERVER = """
import asyncio, socket
from mcpd import Server
server = Server("other")

@server.tool
async def used() -> str:
    process = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    near, far = socket.socketpair()
    with near, far:
        far.setblocking(False)
        near.send(said)
        return (await asyncio.get_running_loop().sock_recv(far, 99)).decode()
"""


async def used(child: Child, path: Path) -> Any:
    async with process_wire(child, str(path), version=LEGACY[-1]) as wire:
        answer = await wire.answer(wire.ask("tools/call", {"name": "used"}))
    return answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("name", ["base64", "locale", "platform", "ssl", "struct", "subprocess"])
async def test_a_file_beside_the_target_is_not_taken_for_it(child: Child, tmp_path: Path, name: str) -> None:
    """Python had them loaded already when the folder of the target came into its path."""
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')\n", encoding="utf-8")
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    assert await used(child, tmp_path / "server.py") == "hello\n"


CONNECTING = """
import asyncio, sys
from mcpd import Server
server = Server("connects")

@server.tool
async def used() -> str:
    try:
        await asyncio.open_connection("localhost", 9, happy_eyeballs_delay=0.1)
    except OSError:
        return sys.modules["asyncio.staggered"].__file__
"""


async def test_a_module_of_a_package_is_looked_for_in_that_package(child: Child, tmp_path: Path) -> None:
    (tmp_path / "found").mkdir()
    for name in ("staggered", "sslproto"):
        (tmp_path / "found" / f"{name}.py").write_text("raise RuntimeError('not this one')\n", encoding="utf-8")
    (tmp_path / "server.py").write_text(CONNECTING, encoding="utf-8")
    child.env["PYTHONPATH"] = os.pathsep.join(filter(None, [child.env.get("PYTHONPATH"), str(tmp_path / "found")]))
    assert await used(child, tmp_path / "server.py") == str(Path(asyncio.__file__).parent / "staggered.py")


@pytest.mark.parametrize("name", ["platform", "ssl", "subprocess"])
async def test_nor_is_the_target_itself(child: Child, tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text(SERVER, encoding="utf-8")
    assert await used(child, tmp_path / f"{name}.py") == "hello\n"


async def test_where_tls_cannot_be_loaded_the_rest_works(child: Child, tmp_path: Path) -> None:
    """asyncio does without it then, in a Python whose libssl is gone."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "_ssl.py").write_text("raise ImportError('no libssl')\n", encoding="utf-8")
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    child.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path / "broken"), child.env.get("PYTHONPATH")]))
    assert await used(child, tmp_path / "server.py") == "hello\n"


NO_DESCRIPTORS = """
import asyncio, os, resource, socket
from mcpd import Context, Server
server = Server("full")
held = []
near, far = socket.socketpair()
far.setblocking(False)

@server.tool
async def receive() -> str:
    near.send(b"sent")
    return (await asyncio.get_running_loop().sock_recv(far, 9)).decode()

@server.tool
async def take() -> str:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    try:
        while True:
            held.append(os.dup(2))
    except OSError:
        return "taken"

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
async def steps(ctx: Context) -> str:
    await ctx.progress(1)
    return "done"
"""


async def test_without_descriptors_calls_are_answered(child: Child, tmp_path: Path) -> None:
    """What is loaded at the second call of a kind, or after a progress message, cannot be loaded then."""
    (tmp_path / "full.py").write_text(NO_DESCRIPTORS, encoding="utf-8")
    async with process_wire(child, str(tmp_path / "full.py"), version=LEGACY[-1]) as wire:
        said = [(await wire.answer(wire.ask("tools/call", {"name": "take"})))["result"]["content"][0]["text"]]
        for number in range(4):
            arguments = {"name": "echo", "arguments": {"text": f"{number}"}}
            said.append((await wire.answer(wire.ask("tools/call", arguments)))["result"]["content"][0]["text"])
        id = wire.ask("tools/call", {"name": "steps", "_meta": {"progressToken": 1}})
        said.append((await wire.answer(id))["result"]["content"][0]["text"])
        id = wire.ask("tools/call", {"name": "receive"})  # asyncio asks of its socket whether it is TLS's
        said.append((await wire.answer(id))["result"]["content"][0]["text"])
    assert said == ["taken", "0", "1", "2", "3", "done", "sent"]


@pytest.mark.parametrize(
    ("words", "is_alone"),
    [
        ("serve --stdio", True),
        ("serve --stdio server.py -- --http", True),
        ("serve --http :8080 server.py -- --stdio", False),
        ("serve --stdio --http :8080", False),
        ("serve --stdio --ws=:8080", False),
        ("serve server.py", False),
    ],
)
def test_it_is_for_stdio_alone(words: str, is_alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _is_stdio_alone(words.split()) is is_alone
    monkeypatch.setenv("MCPD_WS", ":8080")
    assert not _is_stdio_alone(words.split())
