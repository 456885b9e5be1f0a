"""Logins that outlive the process: the file, the keyring, and what is wrong with either."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from support.login_world import world

from mcpd import Client
from mcpd.client.auth.store import FileStore, KeyringSecrets, Login, LoginRecords, MemoryStore, Registration
from mcpd.client.http.options import has_login, login_file
from mcpd.errors import ConfigurationError

LOGIN = Login(url="https://a.example/mcp", issuer="https://i.example", client_id="c", access_token="secret-1")
REGISTRATION = Registration(
    issuer="https://i.example", client_id="c", client_secret="secret-2", method="client_secret_basic", redirect_uri="r"
)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "state" / "auth.json")


def test_only_its_owner_can_read_it(store: FileStore) -> None:
    """AUTH-214, S25-151, S26-184: the file, and the folder that is made for it."""
    store.change(lambda kept: kept.add(LOGIN))
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert store.read().login(LOGIN.url) == LOGIN
    assert store.read().login(LOGIN.url, "another") is None
    assert [path.name for path in store.path.parent.iterdir() if path.name.count(".") > 2] == []


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_can_read_is_refused(store: FileStore, mode: int) -> None:
    """AUTH-214."""
    store.change(lambda kept: kept.add(LOGIN))
    store.path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600") as raised:
        store.read()
    assert "secret" not in str(raised.value)


def test_what_is_no_file_of_ours(store: FileStore, tmp_path: Path) -> None:
    """AUTH-214: a link leads anywhere, a folder nowhere."""
    other = tmp_path / "other.json"
    FileStore(other).change(lambda kept: kept.add(LOGIN))
    store.path.parent.mkdir()
    store.path.symlink_to(other)
    with pytest.raises(ConfigurationError, match="symbolic link"):
        store.read()
    store.path.unlink()
    store.path.mkdir()
    with pytest.raises(ConfigurationError, match="not a regular file"):
        store.read()


def test_half_a_file_is_put_aside(store: FileStore) -> None:
    """AUTH-208, AUTH-214: what was in it is not lost for who wants to look."""
    store.change(lambda kept: kept.add(LOGIN))
    whole = store.path.read_bytes()
    for rest in (whole[: len(whole) // 2], whole.replace(b"https", b"http\xff"), b"[" * 3000):
        store.path.write_bytes(rest)
        store.path.chmod(0o600)
        assert store.read().logins == []
        (aside,) = store.path.parent.glob("auth.json.unreadable-*")
        assert aside.read_bytes() == rest
        aside.unlink()


@pytest.mark.parametrize("text", ['{"version": 9, "logins": []}', '{"version": 9, "logins": {"other": 1}}'])
def test_a_file_of_a_newer_version_is_left_alone(store: FileStore, text: str) -> None:
    store.path.parent.mkdir(mode=0o700)
    store.path.write_text(text)
    store.path.chmod(0o600)
    for do in (store.read, lambda: store.change(lambda kept: kept.add(LOGIN))):
        with pytest.raises(ConfigurationError, match="newer mcpd"):
            do()
    assert store.path.read_text() == text


def test_who_changes_it_has_what_others_wrote(store: FileStore) -> None:
    """AUTH-208."""
    other = FileStore(store.path)
    store.change(lambda kept: kept.add(LOGIN))
    other.change(lambda kept: kept.add_registration(REGISTRATION))
    found = store.read()
    assert (found.login(LOGIN.url), found.registration("https://i.example")) == (LOGIN, REGISTRATION)
    assert found.registration("https://other.example") is None
    store.change(lambda kept: kept.remove(LOGIN))
    assert other.read().logins == []


def test_a_registration_whose_secret_has_ended() -> None:
    """AUTH-181."""
    kept = LoginRecords()
    kept.add_registration(Registration(issuer="i", client_id="c", redirect_uri="r", expires_at=1.0))
    assert kept.registration("i") is None


async def test_a_held_lock_is_waited_for(store: FileStore) -> None:
    """AUTH-208, AUTH-213: one refreshes at a time; whoever only reads waits for nobody."""
    order: list[str] = []

    async def work(name: str, other: FileStore) -> None:
        async with other.refreshing():
            order.append(name)
            await asyncio.sleep(0)
            order.append(name)

    await asyncio.gather(work("a", store), work("b", FileStore(store.path)), work("c", FileStore(store.path)))
    assert order[0] == order[1]
    assert order[2] == order[3]
    async with store.refreshing():
        assert FileStore(store.path).read().logins == []
    memory = MemoryStore()
    async with memory.refreshing():
        assert memory.read().logins == []


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert login_file() == str(tmp_path / "mcpd" / "auth.json")
    assert not has_login(LOGIN.url)
    FileStore().change(lambda kept: kept.add(LOGIN))
    assert has_login(LOGIN.url)
    assert has_login(f"{LOGIN.url}?a=b")
    assert has_login("wss://a.example/mcp")
    assert not has_login("https://a.example/mc")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    for platform, part in (("linux", ".local"), ("darwin", "Library"), ("win32", "mcpd")):
        monkeypatch.setattr(sys, "platform", platform)
        assert part in login_file()


async def test_the_login_of_the_user_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AUTH-200: `Client(url)` has what `mcpd login` has left; without it nothing of authorization is loaded."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with world() as there:
        async with Client(there.url, auth=there.oauth(store=None)):
            pass
        async with Client(there.url) as client:
            await client.call_tool("read")
            there.tokens.clear()
            await client.call_tool("read")
        assert len(there.visits) == 1
        # A token that is given comes before it.
        with pytest.raises(Exception, match="401"):
            async with Client(there.url, headers={"Authorization": "Bearer other"}):
                pass


class Ring:
    """A keyring in memory."""

    def __init__(self) -> None:
        self.secrets: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def get_password(self, service: str, name: str, /) -> str | None:
        if self.is_locked:
            raise RuntimeError("secret-1 is locked")
        return self.secrets.get((service, name))

    def set_password(self, service: str, name: str, secret: str, /) -> None:
        self.secrets[service, name] = secret

    def delete_password(self, service: str, name: str, /) -> None:
        del self.secrets[service, name]


def test_secrets_in_the_keyring(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTH-214: the file is an index of them."""
    ring = Ring()
    kept = FileStore(store.path, KeyringSecrets(ring))
    login: Any = LOGIN

    def add(found: LoginRecords) -> None:
        found.add(login)
        found.add_registration(REGISTRATION)

    kept.change(add)
    assert b"secret-" not in store.path.read_bytes()
    assert kept.read().login(LOGIN.url) == LOGIN
    assert kept.read().registration("https://i.example") == REGISTRATION
    monkeypatch.setattr("mcpd.client.auth.store._installed", lambda: ring)
    assert FileStore(store.path).read().login(LOGIN.url) == LOGIN

    ring.is_locked = True
    with pytest.raises(ConfigurationError, match="keyring") as raised:
        kept.read()
    assert "secret-1" not in str(raised.value)
    ring.is_locked = False
    FileStore(store.path).change(lambda found: found.remove(LOGIN))
    assert len(ring.secrets) == 1
    ring.secrets.clear()
    assert kept.read().logins == []


def test_no_secret_is_in_a_repr() -> None:
    """AUTH-057."""
    kept = LoginRecords(logins=[LOGIN], registrations=[REGISTRATION])
    for one in (LOGIN, REGISTRATION, kept, REGISTRATION.client):
        assert "secret-" not in repr(one)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    if os.getuid() == 0:
        place = tmp_path / "file"
        place.write_text("")
        with pytest.raises(ConfigurationError):
            FileStore(place / "auth.json").change(lambda kept: kept.add(LOGIN))
        return
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigurationError):
        FileStore(tmp_path / "state" / "auth.json").change(lambda kept: kept.add(LOGIN))
