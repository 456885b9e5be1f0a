"""Skills: what clients get of them on the wire, by SEP-2640; what is left out, and what is never served."""

from __future__ import annotations

import hashlib
import os
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from support.folders import opened, problems, write
from support.wires import LEGACY, MODERN, Wire, memory_wire

import mcpd
from mcpd.errors import RegistrationError
from mcpd.server.extensions import skills
from mcpd.server.extensions.skills import SKILLS
from mcpd.server.joined import join

BOTH = pytest.mark.parametrize("version", [LEGACY[-1], MODERN])


def head(name: str, more: str = "") -> str:
    return f"---\nname: {name}\ndescription: Does {name}.\n{more}---\n# {name}\n"


FILES: dict[str, str | bytes] = {
    "skills/tend/SKILL.md": head("tend", "license: MIT\nmetadata:\n  version: '1'\nlevels: [1, {deep: true}]\n"),
    "skills/tend/references/order.md": "first\r\nsecond",
    "skills/tend/references/bed map.png": b"\x89PNG\0\xff",
    "skills/tend/inner/SKILL.md": head("inner"),
    "skills/acme/refunds/SKILL.md": head("refunds"),
    "skills/.git/SKILL.md": "not looked at",
}


async def digests(wire: Wire, skill: dict[str, Any]) -> None:
    """What the entry says of each file is true of what is read."""
    for one in skill["resources"]:
        (part,) = (await wire.result("resources/read", {"uri": one["uri"]}))["contents"]
        data = part["text"].encode() if "text" in part else b64decode(part["blob"])
        assert one == {"uri": one["uri"], "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


async def listed(wire: Wire) -> dict[str, dict[str, Any]]:
    found, cursor = {}, None
    while True:
        page = await wire.result("skills/list", {} if cursor is None else {"cursor": cursor})
        found |= {skill["uri"]: skill for skill in page["skills"]}
        cursor = page.get("nextCursor")
        if cursor is None:
            return found


@BOTH
async def test_what_clients_get(tmp_path: Path, version: str) -> None:
    server = opened(tmp_path, FILES)
    assert problems(server) == []
    async with memory_wire(server) as wire:
        offered = await wire.open(version)
        assert offered["capabilities"]["extensions"] == {SKILLS: {"directoryRead": True}}
        assert "resources" in offered["capabilities"]
        page = await wire.result("skills/list")
        assert [one["uri"] for one in page["skills"]] == [
            "skill://acme/refunds/SKILL.md", "skill://tend/SKILL.md", "skill://tend/inner/SKILL.md",
        ]  # fmt: skip
        tend = page["skills"][1]
        assert tend["frontmatter"] == {
            "name": "tend", "description": "Does tend.", "license": "MIT", "metadata": {"version": "1"},
            "levels": [1, {"deep": True}],
        }  # fmt: skip
        assert [one["uri"] for one in tend["resources"]] == [
            "skill://tend/SKILL.md", "skill://tend/inner/SKILL.md", "skill://tend/references/bed%20map.png",
            "skill://tend/references/order.md",
        ]  # fmt: skip
        for skill in page["skills"]:
            await digests(wire, skill)
        got = await wire.result("skills/get", {"uri": "skill://tend/SKILL.md"})
        assert got["skill"] == tend
        if version == MODERN:
            assert {"ttlMs", "cacheScope"} <= page.keys() & got.keys()

        for uri in (
            "skill://tend",
            "skill://tend/references/order.md",
            "skill://tend/SKILL.md/",
            "skill://no/SKILL.md",
        ):
            error = (await wire.request("skills/get", {"uri": uri}))["error"]
            assert (error["code"], error["data"]) == (-32602, {"uri": uri})
            assert uri in error["message"]
        resources = {one["uri"]: one for one in (await wire.result("resources/list"))["resources"]}
        assert len(resources) == 5
        assert {"name": "inner", "description": "Does inner.", "mimeType": "text/markdown"}.items() <= resources[
            "skill://tend/inner/SKILL.md"
        ].items()


@BOTH
async def test_folders_of_skills(tmp_path: Path, version: str) -> None:
    server = opened(tmp_path, FILES)
    server.catalog.resources.page_size = 2
    async with memory_wire(server, version) as wire:

        async def read(uri: str) -> list[tuple[str, str | None]]:
            found, cursor = [], None
            while True:
                more = {} if cursor is None else {"cursor": cursor}
                page = await wire.result("resources/directory/read", {"uri": uri, **more})
                found += [(one["uri"].removeprefix(f"{uri}/"), one["mimeType"]) for one in page["resources"]]
                cursor = page.get("nextCursor")
                if cursor is None:
                    return found

        folder = "inode/directory"
        assert await read("skill://tend") == [
            ("SKILL.md", "text/markdown"), ("inner", folder), ("references", folder),
        ]  # fmt: skip
        assert await read("skill://tend/references") == [("bed%20map.png", "image/png"), ("order.md", "text/markdown")]
        assert await read("skill://acme") == [("refunds", folder)]
        for uri in ("skill://tend/", "skill://tend/SKILL.md", "skill://none", "skill:", "skill:/", "", "/"):
            answer = await wire.request("resources/directory/read", {"uri": uri})
            assert answer["error"]["code"] == -32602, uri
        for cursor in ("", "MQ==", "!", "c2tpbGw6Ly8"):
            for method, params in (("skills/list", {}), ("resources/directory/read", {"uri": "skill://tend"})):
                answer = await wire.request(method, {**params, "cursor": cursor})
                assert answer["error"]["code"] == -32602
        assert len(await listed(wire)) == 3


async def test_pages_have_no_more_files_than_an_answer_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skills, "MOST_NAMED", 3)
    server = opened(tmp_path, FILES)
    async with memory_wire(server, MODERN) as wire:
        first = await wire.result("skills/list")
        assert [len(one["resources"]) for one in first["skills"]] == [1, 4]
        last = await wire.result("skills/list", {"cursor": first["nextCursor"]})
        assert [one["frontmatter"]["name"] for one in last["skills"]] == ["inner"]
        assert "nextCursor" not in last


async def test_an_edit_that_nobody_watched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is told fits what is read then, or the skill is not there."""
    server = opened(tmp_path, FILES)
    async with memory_wire(server, MODERN) as wire:
        await listed(wire)
        write(tmp_path, {"skills/tend/references/order.md": "third", "skills/tend/SKILL.md": head("tend", "new: 1\n")})
        (tmp_path / "skills/tend/references/bed map.png").unlink()
        tend = (await listed(wire))["skill://tend/SKILL.md"]
        assert tend["frontmatter"]["new"] == 1
        assert len(tend["resources"]) == 3
        await digests(wire, tend)

        write(tmp_path, {"skills/tend/SKILL.md": "---\nname: [tend\n---\n"})
        for _ in range(2):
            assert list(await listed(wire)) == ["skill://acme/refunds/SKILL.md", "skill://tend/inner/SKILL.md"]
        answer = await wire.request("skills/get", {"uri": "skill://tend/SKILL.md"})
        assert answer["error"]["code"] == -32602
        (message,) = [record.message.partition(": ")[2] for record in caplog.records]
        assert message.startswith("its front matter is not valid YAML")
        assert message.endswith("in quotes; it is no longer served")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# none", "line 1: has no front matter; begin the file with ---"),
        ("\ufeff" + head("x"), "line 1: begins with a byte order mark"),
        (b"---\nname: x\n\xff", "line 3: is not UTF-8"),
        ("---\nname: x\ndescription: a\nx:\n  b: c: d\n---\n", "line 5: its front matter is not valid YAML"),
        ("---\ndescription: a\n---\n", "line 1: its front matter has no name; write name: x"),
        ("---\n\nname: y\ndescription: a\n---\n", "line 3: its name y differs from the name of its folder, 'x'"),
        ("---\nname: X_\ndescription: a\n---\n", "line 2: 'X_' is not a valid skill name"),
        ("---\nname: 7\ndescription: a\n---\n", "line 2: '7' is not a valid skill name"),
        ("---\nname: x\n---\n", "its front matter has no description"),
        (f"---\nname: x\ndescription: {'a' * 1025}\n---\n", "line 3: its description has 1025 characters"),
        ("+++\nname = 'x'\n+++\n", "line 1: has no front matter"),
    ],
)
def test_what_is_no_skill(tmp_path: Path, text: str | bytes, said: str) -> None:
    """It is named with its line, and left out; the others are served."""
    server = opened(tmp_path, {"skills/x/SKILL.md": text, "skills/y/SKILL.md": head("y")})
    (problem,) = problems(server)
    assert problem.startswith("skills/x/SKILL.md, line ")
    assert said in problem
    assert problem.endswith("; the skill is left out")
    assert [entry.key for entry in server.catalog.resources] == ["skill://y/SKILL.md"]


def test_what_is_odd(tmp_path: Path) -> None:
    more = "compatibility: 3\nallowed-tools: [a]\nmetadata:\n  io.modelcontextprotocol/x: 1\n"
    files = {"skills/SKILL.md": head("skills"), "skills/a/skill.md": head("a"), "skills/b/notes.md": "",
             "skills/c/SKILL.md": head("c", more), "skills/d.md": ""}  # fmt: skip
    server = opened(tmp_path, files)
    assert sorted(problems(server)) == [
        "skills/SKILL.md, line 1: is not in a folder of its own; move it into a folder with the skill's name; "
        "the skill is left out",
        "skills/a/skill.md: is not a skill: its name is skill.md, not SKILL.md",
        "skills/b: is not a skill: it has no SKILL.md",
        "skills/c/SKILL.md: allowed-tools in its front matter must be a string",
        "skills/c/SKILL.md: compatibility in its front matter must be a string",
        "skills/c/SKILL.md: io.modelcontextprotocol/x in its metadata is reserved for the protocol "
        "and has no meaning there",
    ]


async def test_hostile_folders(tmp_path: Path) -> None:
    """Links out, pipes, what is too large or too many, names of all kinds: reported, and nothing else is served."""
    (tmp_path / "secret.txt").write_text("secret")
    garden = tmp_path / "garden"
    write(garden, {f"skills/{name}/SKILL.md": head(name) for name in ("big", "links", "many", "names")})
    links = garden / "skills" / "links"
    (links / "out.md").symlink_to(tmp_path / "secret.txt")
    (links / "dir").symlink_to(tmp_path)
    (links / "in.md").symlink_to(links / "SKILL.md")
    os.mkfifo(links / "pipe")
    (garden / "skills" / "whole").symlink_to(links)
    (garden / "skills" / "stolen").mkdir()
    (garden / "skills" / "stolen" / "SKILL.md").symlink_to(tmp_path / "secret.txt")
    with open(garden / "skills" / "big" / "huge.bin", "wb") as file:
        file.truncate(1024**3)
    write(garden, {f"skills/many/{number}.md": "" for number in range(600)})
    odd = ["new\nline.md", "\u202egnp.md", "🌱.md", "per%2e%2ecent.md", "a b?#.md", "CON", "\udcff.md"]
    for name in odd:
        (garden / "skills" / "names" / name).write_text("odd")

    server = opened(garden)
    said = "\n".join(problems(server))
    for part in ("links/out.md: is a link that leads out", "links/dir: is a link to a folder",
                 "links/pipe: is not a regular file", "skills/whole: is a link to a folder",
                 "stolen/SKILL.md: is a link that leads out", "big/SKILL.md: its files are larger than 16777216 bytes",
                 "many/SKILL.md: the skill has more than 512 files"):  # fmt: skip
        assert part in said
    assert all(problem.isprintable() for problem in problems(server))
    async with memory_wire(server, MODERN) as wire:
        found = await listed(wire)
        assert list(found) == ["skill://links/SKILL.md", "skill://names/SKILL.md"]
        assert [one["uri"] for one in found["skill://links/SKILL.md"]["resources"]][1:] == ["skill://links/in.md"]
        names = found["skill://names/SKILL.md"]
        assert len(names["resources"]) == len(odd) + 1
        for skill in found.values():
            await digests(wire, skill)
        children = await wire.result("resources/directory/read", {"uri": "skill://names"})
        assert len(children["resources"]) == len(odd) + 1
        assert all(one["name"].isprintable() for one in children["resources"])

        # What was a file becomes a link that leads out, after the look.
        (links / "in.md").unlink()
        (links / "in.md").symlink_to(tmp_path / "secret.txt")
        again = (await listed(wire))["skill://links/SKILL.md"]
        assert len(again["resources"]) == 1
        answer = await wire.request("resources/read", {"uri": "skill://links/in.md"})
        assert "secret" not in str(answer["error"])


async def test_in_code_and_joined(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    one, two = mcpd.Server("one"), mcpd.Server("two")
    assert SKILLS not in one.catalog.extensions
    assert mcpd.add_skills(one, tmp_path / "skills") == [
        "skill://acme/refunds/SKILL.md", "skill://tend/SKILL.md", "skill://tend/inner/SKILL.md",
    ]  # fmt: skip
    assert mcpd.add_skills(two, str(tmp_path / "skills" / "tend"), "acme/garden") == [
        "skill://acme/garden/inner/SKILL.md"
    ]
    with pytest.raises(RegistrationError, match="prefix must be like acme/billing"):
        mcpd.add_skills(two, tmp_path, "/a")
    assert mcpd.add_skills(two, tmp_path / "none") == []
    assert "is not a folder" in problems(two)[-1]
    async with memory_wire(join([one, two]), MODERN) as wire:
        found = await listed(wire)
        assert len(found) == 4
        for skill in found.values():
            await digests(wire, skill)


async def test_rules_and_switches(tmp_path: Path) -> None:
    """What is hidden from a request, or turned off, is in no list and in no skill."""
    server = opened(tmp_path, FILES)
    server.disable(names=["skill://acme/refunds/SKILL.md"])

    @server.visibility
    def no_pictures(entry: mcpd.CatalogEntry, ctx: mcpd.Context) -> bool:
        return not (entry.uri or "").endswith((".png", "inner/SKILL.md"))

    async with memory_wire(server, MODERN) as wire:
        (tend,) = (await listed(wire)).values()
        assert [one["uri"] for one in tend["resources"]] == [
            "skill://tend/SKILL.md", "skill://tend/references/order.md",
        ]  # fmt: skip
        answer = await wire.request("skills/get", {"uri": "skill://tend/inner/SKILL.md"})
        assert answer["error"]["code"] == -32602
        read = await wire.result("resources/directory/read", {"uri": "skill://tend/references"})
        assert [one["name"] for one in read["resources"]] == ["order.md"]


async def test_what_changes_under_reload(tmp_path: Path) -> None:
    from mcpd.sources.folder import Folder
    from mcpd.sources.lookup import folder_at

    source = Folder(folder_at(str(write(tmp_path, FILES))), is_growing=True)
    async with memory_wire(source.server, LEGACY[-1]) as wire:
        await wire.result("resources/subscribe", {"uri": "skill://tend/references/order.md"})
        write(tmp_path, {"skills/tend/references/order.md": "other", "skills/new/SKILL.md": head("new")})
        source.refresh()
        said = sorted([(await wire.receive())["method"] for _ in range(2)])
        assert said == ["notifications/resources/list_changed", "notifications/resources/updated"]
        found = await listed(wire)
        assert "skill://new/SKILL.md" in found
        await digests(wire, found["skill://tend/SKILL.md"])
        source.refresh()
        await wire.quiet()
        (tmp_path / "skills/new/SKILL.md").unlink()
        source.refresh()
        assert (await wire.receive())["method"] == "notifications/resources/list_changed"
        assert "skill://new/SKILL.md" not in await listed(wire)


def test_the_table_of_mcpd_toml(tmp_path: Path) -> None:
    files = {**FILES, "mcpd.toml": 'name = "g"\n[skills]\nprefix = "acme/x"\nexclude = ["*.png", "tend/inner/*"]\n'}
    server = opened(tmp_path, files)
    assert [entry.key for entry in server.catalog.resources] == [
        "skill://acme/x/acme/refunds/SKILL.md", "skill://acme/x/tend/SKILL.md",
        "skill://acme/x/tend/references/order.md",
    ]  # fmt: skip
