"""What `mcpd serve` loads no sooner than it is used is there when it is used, and for everybody else as ever."""

from __future__ import annotations

import subprocess
import typing
from pathlib import Path

import typing_extensions
from conftest import Child
from support.wires import LEGACY, process_wire

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
assert asyncio.sslproto.SSLProtocol.__module__ == "asyncio.sslproto"
stand_ins = {
    "asyncio.sslproto": base.sslproto, "asyncio.staggered": base.staggered, "asyncio.trsock": base.trsock,
    "ssl": base.ssl, "subprocess": events.subprocess,
}
for name, holder in {"array": socket, "platform": uuid}.items():  # newer Pythons import them when they use them
    if hasattr(holder, name):
        stand_ins[name] = getattr(holder, name)
assert set(names) - {"array", "platform"} == {*stand_ins, "typing_extensions"} - {"array", "platform"}

import array, asyncio.sslproto, asyncio.staggered, asyncio.trsock, platform, ssl, subprocess
import typing_extensions
for name, stand_in in stand_ins.items():
    real = sys.modules[name]
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
assert asyncio.sslproto is sys.modules["asyncio.sslproto"]
if hasattr(uuid, "platform"):
    assert uuid.platform.system() == platform.system()

# What others put into a module later is seen.
marker = ssl.SSLContext = type("Other", (ssl.SSLContext,), {})
assert asyncio.base_events.ssl.SSLContext is marker
load_libraries()
assert sys.modules["ssl"] is ssl
"""

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


def test_msgspec_reads_the_same_types(child: Child) -> None:
    plain = run(child, HINTS)
    assert "that are indented" in plain
    assert run(child, HINTS, "deferred") == plain


def test_names_that_are_given_at_once_are_the_real_ones() -> None:
    assert typing_extensions.Required is typing.Required
    assert typing_extensions.NotRequired is typing.NotRequired
