"""A host's file is written whole or not at all, through links, with its mode; and there is a way back."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mcpd.cli.install.entry import Entry
from mcpd.cli.install.files import Journal, back_up, read, write
from mcpd.cli.install.operations import apply, plan_install, plan_uninstall
from mcpd.client.targets.hosts import HOSTS
from mcpd.errors import ConfigurationError

CURSOR = HOSTS["cursor"]
ENTRY = Entry(command="/opt/mcpd", args=("serve", "--stdio"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {}}\n')
    path.chmod(0o640)
    return path


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal({"HOME": str(tmp_path)})


def test_mode_stays_and_nothing_is_left_over(path: Path) -> None:
    write(read(str(path)), b"{}")
    assert path.read_bytes() == b"{}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(path.parent) == ["mcp.json"]


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "mcp.json"
    write(read(str(path)), b"{}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_written_through(path: Path, tmp_path: Path, journal: Journal) -> None:
    """As people have them who keep such files in a repository of their own."""
    link, again = tmp_path / "link.json", tmp_path / "again.json"
    link.symlink_to(path)
    again.symlink_to("link.json")
    apply(plan_install(CURSOR, "n", ENTRY, str(again)), journal)
    assert again.is_symlink()
    assert link.is_symlink()
    assert '"n"' in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    journal.undo("cursor", str(path))
    assert path.read_text() == '{"mcpServers": {}}\n'

    broken = tmp_path / "broken.json"
    broken.symlink_to(tmp_path / "later.json")
    apply(plan_install(CURSOR, "n", ENTRY, str(broken)), journal)
    assert broken.is_symlink()
    assert '"n"' in (tmp_path / "later.json").read_text()


def test_a_file_of_two_names_stays_one(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    os.link(path, other)
    write(read(str(path)), b"{ }")
    assert other.read_bytes() == b"{ }"


def test_what_may_not_be_written_is_not(path: Path, journal: Journal) -> None:
    path.chmod(0o440)
    with pytest.raises(ConfigurationError, match="read-only; allow writing"):
        apply(plan_install(CURSOR, "n", ENTRY, str(path)), journal)
    assert path.read_text() == '{"mcpServers": {}}\n'
    path.chmod(0o640)

    plan = plan_install(CURSOR, "n", ENTRY, str(path))
    path.write_text('{"mcpServers": {}, "host": "was here"}')
    with pytest.raises(ConfigurationError, match="changed by another program just now"):
        apply(plan, journal)
    assert "was here" in path.read_text()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{\n  "mcpServers": {\n    "a": {}\n', "line 4"),
        (b'{"mcpServers": }', "line 1, column 16"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8, at byte 0"),
        (b"[]", "must contain an object"),
        (b'{"mcpServers": []}', "cannot be edited|not an object"),
    ],
)
def test_a_broken_file_is_left_alone(data: bytes, said: str, path: Path) -> None:
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=said) as raised:
        plan_install(CURSOR, "n", ENTRY, str(path))
    if "line" in said:
        assert str(raised.value).endswith("; fix that first, nothing was written")
    assert path.read_bytes() == data


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read|is not a file"):
        read(str(tmp_path))
    with pytest.raises(ConfigurationError, match="is not a file"):
        read("/dev/null")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
def test_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mcp.json")
    with pytest.raises(ConfigurationError, match="is not a file"):
        read(str(tmp_path / "mcp.json"))


def test_a_file_of_somebody_else_stays_theirs(path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is ours: another file could be put in its place."""
    monkeypatch.setattr(os, "access", lambda place, mode: place != str(path))
    with pytest.raises(ConfigurationError, match="another user.*ask its owner"):
        apply(plan_install(CURSOR, "n", ENTRY, str(path)), journal)
    assert os.listdir(path.parent) == ["mcp.json"]


def test_on_a_full_disk_nothing_is_left_over(path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_install(CURSOR, "n", ENTRY, str(path))
    resource = pytest.importorskip("resource")
    where = resource.RLIMIT_FSIZE
    limits = resource.getrlimit(where)
    resource.setrlimit(where, (5, limits[1]))  # Python ignores the signal, and gets an error as of a full disk
    try:
        with pytest.raises(ConfigurationError, match="cannot be copied to"):
            apply(plan, journal)
    finally:
        resource.setrlimit(where, limits)
    assert os.listdir(path.parent) == ["mcp.json"]
    assert path.read_text() == '{"mcpServers": {}}\n'


def test_two_at_once_know_of_each_other(path: Path, tmp_path: Path) -> None:
    """Each has read the records before the other wrote, as two installs do whose servers start meanwhile."""
    one, other = Journal({"HOME": str(tmp_path)}), Journal({"HOME": str(tmp_path)})
    second = path.with_name("second.json")
    apply(plan_install(CURSOR, "n", ENTRY, str(path)), one)
    apply(plan_install(CURSOR, "n", ENTRY, str(second)), other)
    assert [each.path for each in Journal({"HOME": str(tmp_path)}).records] == [str(path), str(second)]

    one.undo("cursor", str(path))
    assert [each.path for each in Journal({"HOME": str(tmp_path)}).records] == [str(second)]


def test_what_changed_meanwhile_leaves_no_copy(path: Path, journal: Journal) -> None:
    plan = plan_install(CURSOR, "n", ENTRY, str(path))
    path.write_text("{}")
    with pytest.raises(ConfigurationError, match="just now"):
        apply(plan, journal)
    assert os.listdir(path.parent) == ["mcp.json"]


def test_copies_are_its_owners_and_few(path: Path) -> None:
    made = [back_up(read(str(path))) for _ in range(8)]
    kept = sorted(each for each in os.listdir(path.parent) if each.endswith(".mcpd-backup"))
    assert [os.path.basename(each) for each in made[-5:]] == kept
    assert stat.S_IMODE(os.stat(made[-1]).st_mode) == 0o600
    assert back_up(read(str(path.parent / "none.json"))) == ""


def test_the_way_back(path: Path, journal: Journal) -> None:
    before = path.read_bytes()
    apply(plan_install(CURSOR, "one", ENTRY, str(path)), journal)
    with_one = path.read_bytes()
    apply(plan_install(CURSOR, "two", ENTRY, str(path)), journal)
    apply(plan_uninstall(CURSOR, "one", str(path), journal=journal), journal)
    assert '"one"' not in path.read_text()

    journal = Journal({"HOME": str(path.parent.parent)})  # another day
    journal.undo("cursor", str(path))
    journal.undo("cursor", str(path))
    assert path.read_bytes() == with_one
    path.write_bytes(with_one + b"\n")
    with pytest.raises(ConfigurationError, match=r"changed since.*mcpd-backup.*--force"):
        journal.undo("cursor", str(path))
    journal.undo("cursor", str(path), force=True)
    assert path.read_bytes() == before
    with pytest.raises(ConfigurationError, match="there is nothing to undo"):
        journal.undo("cursor", str(path))


def test_copies_of_a_project_stand_elsewhere(path: Path, journal: Journal) -> None:
    """Or they would be in its repository next."""
    done = apply(plan_install(CURSOR, "n", ENTRY, str(path)), journal, is_project=True)
    assert os.listdir(path.parent) == ["mcp.json"]
    assert done.backup.startswith(journal.folder)


def test_without_a_state_folder(path: Path) -> None:
    """It is written all the same, and can be taken out again."""
    journal = Journal({"HOME": "/dev/null"})
    before = path.read_bytes()
    apply(plan_install(CURSOR, "n", ENTRY, str(path)), journal)
    apply(plan_uninstall(CURSOR, "n", str(path), journal=Journal({"HOME": "/dev/null"})), journal)
    assert path.read_bytes() == before
