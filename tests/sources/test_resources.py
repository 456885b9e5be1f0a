"""Files as resources: by type, as text or bytes, with sizes; and nothing that is not in the folder, however asked."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given, settings, strategies as st
from support.folders import opened, problems, write
from support.wires import LEGACY, MODERN, Wire, memory_wire

from mcpd.sources.files import MAX_LOGGED, Report, files_of

BOTH = pytest.mark.parametrize("version", [LEGACY[-1], MODERN])


async def uris(wire: Wire) -> list[str]:
    found: list[str] = []
    params: dict[str, str] = {}
    while True:
        page = await wire.result("resources/list", params)
        found += [one["uri"] for one in page["resources"]]
        if "nextCursor" not in page:
            return found
        params = {"cursor": page["nextCursor"]}


@BOTH
async def test_by_type(tmp_path: Path, version: str) -> None:
    """S26: text where it is text, base64 where it is not, whatever the name says."""
    files: dict[str, str | bytes] = {
        "resources/a.md": "# A",
        "resources/b.json": b'\xef\xbb\xbf{"a": 1}',
        "resources/c.txt": b"no text \0 \xff",
        "resources/d.png": b"\x89PNG",
        "resources/e.svg": "<svg/>",
        "resources/f": "of no type",
        "resources/g": b"\xff\xfe\x00",
        "resources/h.yaml": "a: 1",
        "resources/i.docx": b"PK",
        "resources/j.nosuch": "text",
        "resources/k.csv": b"caf\xe9",
        "resources/empty.txt": "",
        "resources/.hidden": "no",
        "resources/.git/config": "no",
        "resources/x.md~": "no",
        "resources/drafts/d.md": "no",
        "mcpd.toml": '[resources]\nexclude = ["drafts/*"]\nuri = "r:/"\n',
    }
    async with memory_wire(opened(tmp_path, files), version) as wire:
        listed = {one["uri"]: one for one in (await wire.result("resources/list"))["resources"]}
        assert all(one["size"] == len(bytes(_bytes(files[f"resources/{uri[3:]}"]))) for uri, one in listed.items())
        found = {}
        for uri in listed:
            (one,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
            content = one["text"] if "text" in one else base64.b64decode(one["blob"])
            found[uri[3:]] = (listed[uri].get("mimeType"), one["mimeType"], content)
    binary = "application/octet-stream"
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    assert found == {
        "a.md": ("text/markdown", "text/markdown", "# A"),
        "b.json": ("application/json", "application/json", '{"a": 1}'),
        "c.txt": ("text/plain", binary, b"no text \0 \xff"),
        "d.png": ("image/png", "image/png", b"\x89PNG"),
        "e.svg": ("image/svg+xml", "image/svg+xml", "<svg/>"),
        "f": (None, "text/plain", "of no type"),
        "g": (None, binary, b"\xff\xfe\x00"),
        "h.yaml": ("application/yaml", "application/yaml", "a: 1"),
        "i.docx": (word, word, b"PK"),
        "j.nosuch": (None, "text/plain", "text"),
        "k.csv": ("text/csv", binary, b"caf\xe9"),
        "empty.txt": ("text/plain", "text/plain", ""),
    }


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


@BOTH
async def test_nothing_outside(tmp_path: Path, version: str) -> None:
    """By no link, no `..`, no absolute path, in no encoding; a file that becomes a link later is not read either."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "x.txt").write_text("secret")
    root = write(tmp_path / "g", {"resources/a.txt": "A", "resources/b/later.txt": "B", "resources/[n].txt": "{{n}}"})
    (root / "resources" / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "resources" / "rel.txt").symlink_to("../../secret.txt")
    (root / "resources" / "folder").symlink_to(tmp_path / "others")
    (root / "resources" / "up").symlink_to("..")
    (root / "resources" / "in.txt").symlink_to("a.txt")
    (root / "resources" / "gone.txt").symlink_to("nothing")
    server = opened(root)
    assert sorted(problems(server)) == [
        "resources/folder: is a link to a folder; links are not followed into folders",
        "resources/gone.txt: cannot be read (No such file or directory); it is left out",
        "resources/out.txt: is a link that leads out of the folder; it is left out",
        "resources/rel.txt: is a link that leads out of the folder; it is left out",
        "resources/up: is a link to a folder; links are not followed into folders",
    ]
    async with memory_wire(server, version) as wire:
        assert await uris(wire) == [f"resource://g/{name}" for name in ("a.txt", "in.txt", "b/later.txt")]
        (one,) = (await wire.result("resources/read", {"uri": "resource://g/in.txt"}))["contents"]
        assert one["text"] == "A"

        for path in ("..", "../mcpd.toml", "%2e%2e/x", "%252e%252e%252fx", "b/../../secret.txt", "/etc/passwd",
                     "%2Fetc%2Fpasswd", "out.txt/../a.txt", "folder/x.txt", "b\\..\\a", "a.txt%00", "%c0%ae%c0%ae/x",
                     "..%2f..%2fsecret.txt", "%2e%2e%2f%2e%2e%2fsecret.txt", "C:%5Cx.txt"):  # fmt: skip
            answer = await wire.request("resources/read", {"uri": f"resource://g/{path}"})
            told = str(answer.get("result", ""))
            assert "secret" not in told.replace("secret.txt", ""), path
            assert "error" in answer or "contents" in answer["result"], path

        for after in ("secret.txt", "others"):
            (root / "resources" / "a.txt").unlink()
            (root / "resources" / "a.txt").symlink_to(tmp_path / after)
            assert "error" in await wire.request("resources/read", {"uri": "resource://g/a.txt"})
        (root / "resources" / "b" / "later.txt").unlink()
        (root / "resources" / "b").rmdir()
        (tmp_path / "others" / "later.txt").write_text("secret")
        (root / "resources" / "b").symlink_to(tmp_path / "others")
        assert "error" in await wire.request("resources/read", {"uri": "resource://g/b/later.txt"})


async def test_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipes, sockets and devices are never opened: nobody may ever write to them. Unreadable ones are named."""
    import socket

    write(tmp_path, {"resources/a.txt": "A", "resources/locked.txt": "L"})
    os.mkfifo(tmp_path / "resources" / "pipe.txt")
    (tmp_path / "resources" / "null.txt").symlink_to("/dev/null")
    (tmp_path / "tools").mkdir()
    os.mkfifo(tmp_path / "tools" / "pipe.py")
    (tmp_path / "prompts").mkdir()
    os.mkfifo(tmp_path / "prompts" / "pipe.md")
    monkeypatch.chdir(tmp_path / "resources")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.txt")
    (tmp_path / "resources" / "locked.txt").chmod(0)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "locked" not in str(path) and access(path, mode))  # for root

    server = opened(tmp_path)
    assert sorted(problems(server)) == [
        "prompts/pipe.md: is not a regular file; it is left out",
        "resources/locked.txt: cannot be read (Permission denied); it is left out",
        "resources/null.txt: is a link that leads out of the folder; it is left out",
        "resources/pipe.txt: is not a regular file; it is left out",
        "resources/socket.txt: is not a regular file; it is left out",
        "tools/pipe.py: is not a regular file; it is left out",
    ]
    async with memory_wire(server, MODERN) as wire:
        (uri,) = await uris(wire)
        (tmp_path / "resources" / "a.txt").unlink()
        os.mkfifo(tmp_path / "resources" / "a.txt")
        assert (await wire.error("resources/read", {"uri": uri}))["data"] == {"uri": uri}
    assert stat.S_ISFIFO((tmp_path / "resources" / "a.txt").stat().st_mode)


@BOTH
async def test_names_of_any_kind(tmp_path: Path, version: str) -> None:
    """Newlines, emoji, marks that turn text around, bytes that are no UTF-8: each has a URI that reads it, and a name
    that forges nothing."""
    names = [
        "new\nline.txt",
        "🌻.md",
        "ab\u202eexe.txt",
        "sp ace#?%41&.txt",
        "ü.txt",
        "a{b}.txt",
        "tab\t.txt",
        "[1].txt",
    ]
    root = tmp_path / "g"
    write(root, {f"resources/{name}": name for name in names})
    with open(os.fsencode(root / "resources") + b"/\xff\xfe.txt", "wb") as file:
        file.write(b"raw")
    server = opened(root)
    assert problems(server) == []
    async with memory_wire(server, version) as wire:
        listed = (await wire.result("resources/list"))["resources"]
        assert len(listed) == len(names) + 1
        for one in listed:
            assert one["name"].isprintable()
            assert one["uri"].isascii()
            (content,) = (await wire.result("resources/read", {"uri": one["uri"]}))["contents"]
            path = unquote_to_bytes(one["uri"].removeprefix("resource://g/"))
            assert content["text"] == ("raw" if path == b"\xff\xfe.txt" else path.decode())


def test_bad_names_are_named_without_forging_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = write(tmp_path, {"tools/a\nERROR mcpd: forged \u202e.py": "x = =\n", "prompts/b\n.md": "x"})
    found = problems(opened(root))
    assert len(found) == 2
    assert all(line.isprintable() for line in found)
    assert all(record.getMessage().isprintable() for record in caplog.records)
    assert "'b\\n' is not a valid prompt name" in found[1]


async def test_large_files_and_many(tmp_path: Path) -> None:
    """1 GB costs nothing, and is named; of many files the first ones are served; one that has grown is not read."""
    root = write(tmp_path / "g", {f"resources/{number:02}.txt": str(number) for number in range(20)})
    with open(root / "resources" / "00-large.bin", "wb") as file:
        file.truncate(1 << 30)  # no byte of it is on the disk
    write(root, {"mcpd.toml": "[resources]\nmax-files = 15\nmax-bytes = 1000\n"})
    server = opened(root)
    assert sorted(problems(server)) == [
        "resources/00-large.bin: has 1073741824 bytes, more than 1000 (resources.max-bytes in mcpd.toml); it is left "
        "out",
        "resources: has more than 15 files; the first 15 are served",
    ]
    async with memory_wire(server, MODERN) as wire:
        found = await uris(wire)
        assert found[0] == "resource://g/00.txt"
        assert len(found) == 14
        with open(root / "resources" / "00.txt", "wb") as file:
            file.truncate(1 << 30)
        error = await wire.error("resources/read", {"uri": found[0]})
        assert error["message"] == "The file is larger than 1000 bytes and cannot be served"


@pytest.mark.medium
def test_a_hundred_thousand_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at has a limit, whatever is wanted of it; problems are told up to a number."""
    from mcpd.sources import files as tree

    class Entry:
        def __init__(self, name: str) -> None:
            self.name = name
            self.path = f"{tmp_path}/{name}"

        def is_dir(self, *, follow_symlinks: bool) -> bool:
            return False

        def is_symlink(self) -> bool:
            return False

    class Scan(list[Entry]):
        def __enter__(self) -> Scan:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    (tmp_path / "one").write_text("")
    one = (tmp_path / "one").stat()
    monkeypatch.setattr(tree.os, "scandir", lambda path: Scan(Entry(f"{number:06}") for number in range(100_000)))
    monkeypatch.setattr(tree, "served_status", lambda path, folder: one)
    report = Report(str(tmp_path))
    assert len(files_of(str(tmp_path), report, limit=10_000, is_wanted=bool)) == 10_000
    assert [problem.text for problem in report.found] == ["has more than 10000 files; the first 10000 are served"]

    monkeypatch.setattr(tree, "MAX_ENTRIES", 50_000)
    report = Report(str(tmp_path))
    assert files_of(str(tmp_path), report, limit=10, is_wanted=bool) == []
    assert "contains more than 50000 files and folders" in report.found[0].text

    report = Report(str(tmp_path))
    for number in range(100_000):
        report.error(f"{number}", "is bad")
    assert len(report.found) == MAX_LOGGED + 1
    assert report.found[-1].text == f"and {100_000 - MAX_LOGGED} more problems"


def test_folders_in_folders(tmp_path: Path) -> None:
    """As deep as the system lets them be, without a frame for each."""
    depth = 400
    path = tmp_path
    for _ in range(depth):
        path /= "d"
    path.mkdir(parents=True)
    (path / "x.txt").write_text("")
    (found,) = files_of(str(tmp_path), Report(str(tmp_path)), limit=10, is_wanted=bool)
    assert len(found.parts) == depth + 1


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40))
async def test_each_name_comes_back_from_its_uri(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Percent-encoded as RFC 3986 says, so that decoding gives the name, and nothing that means something in a URI."""
    if name in (".", "..") or name[0] == "." or name.endswith("~") or len(name.encode()) > 200:
        return
    if name in ("__pycache__", "node_modules") or "[" in name:
        return
    root = tmp_path_factory.mktemp("names")
    write(root, {f"resources/{name}": "it", "mcpd.toml": 'name = "n"\n'})
    async with memory_wire(opened(root), MODERN) as wire:
        (uri,) = await uris(wire)
        assert uri == "resource://n/" + quote(name, safe="-._~")
        (content,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
        assert content["text"] == "it"


@BOTH
async def test_families(tmp_path: Path, version: str) -> None:
    """`[name]` in a path is a variable; what the client writes there is put into the text once, and leads nowhere."""
    files = {
        "resources/[lang]/[page].md": "{{ page }} in {{lang}}: {{page}}",
        "resources/x-[id].json": '{"id": "{{id}}"}',
        "resources/[1].txt": "plain",
        "resources/bin/[b].png": b"\x89\0",
        "resources/[a][b].txt": "two",
        "mcpd.toml": 'name = "n"\n',
    }
    server = opened(tmp_path, files)
    async with memory_wire(server, version) as wire:
        templates = (await wire.result("resources/templates/list"))["resourceTemplates"]
        listed = {one["uriTemplate"]: one.get("mimeType") for one in templates}
        assert listed["resource://n/x-{id}.json"] == "application/json"
        assert listed["resource://n/{lang}/{page}.md"] == "text/markdown"
        assert await uris(wire) == ["resource://n/%5B1%5D.txt"]

        async def read(path: str) -> str:
            (one,) = (await wire.result("resources/read", {"uri": f"resource://n/{path}"}))["contents"]
            return str(one["text"])

        assert await read("de/%7B%7Blang%7D%7D.md") == "{{lang}} in de: {{lang}}"
        assert await read("x-7.json") == '{"id": "7"}'
        refused = await wire.error("resources/read", {"uri": "resource://n/de/%2e%2e%2fx.md"})
        assert refused["code"] == -32602
        error = await wire.error("resources/read", {"uri": "resource://n/bin/x.png"})
        assert error["message"] == "The file is not text, so its placeholders cannot be replaced"
