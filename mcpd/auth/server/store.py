"""What outlives a restart, in SQLite: keys, registrations, grants, and digests of codes and refresh tokens.

One connection, in a thread of its own, so that each method is one step that no other comes between. No secret is in
it but the server's own: of codes and tokens there are digests. AUTH-124, AUTH-131, AUTH-144, AUTH-151.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.json import decode, encode

from mcpd.auth.server.clients import Client
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

T = TypeVar("T")

MOST_UNCONFIRMED = 1000
UNCONFIRMED_SECONDS = 3600
UNUSED_SECONDS = 90 * 86400
MOST_ASSERTIONS = 100_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS keys (kid TEXT PRIMARY KEY, jwk TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE IF NOT EXISTS clients (
    id TEXT PRIMARY KEY, data TEXT NOT NULL, address TEXT NOT NULL, created REAL NOT NULL, used REAL);
CREATE TABLE IF NOT EXISTS grants (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, user TEXT NOT NULL, scope TEXT NOT NULL, resource TEXT NOT NULL,
    key TEXT NOT NULL, created REAL NOT NULL, used REAL NOT NULL, revoked REAL, upstream BLOB);
CREATE TABLE IF NOT EXISTS codes (
    digest TEXT PRIMARY KEY, grant_id TEXT NOT NULL REFERENCES grants ON DELETE CASCADE, redirect_uri TEXT NOT NULL,
    challenge TEXT NOT NULL, expires REAL NOT NULL, used REAL);
CREATE TABLE IF NOT EXISTS refresh (
    digest TEXT PRIMARY KEY, grant_id TEXT NOT NULL REFERENCES grants ON DELETE CASCADE, created REAL NOT NULL,
    used REAL);
CREATE TABLE IF NOT EXISTS assertions (digest TEXT PRIMARY KEY, expires REAL NOT NULL);
CREATE INDEX IF NOT EXISTS grants_used ON grants (used);
CREATE INDEX IF NOT EXISTS codes_grant ON codes (grant_id);
CREATE INDEX IF NOT EXISTS refresh_grant ON refresh (grant_id);
"""

Rotation: TypeAlias = Literal["new", "again", "reused", "unknown"]


class User(Struct, frozen=True):
    """Who signed in: a `subject` that never changes, what people are shown, and a verified address, if there is one.

    `scopes` are what they may be given; None for all. `way` is the name of the sign-in.
    """

    subject: str
    name: str
    way: str
    email: str = ""
    scopes: tuple[str, ...] | None = None


class Grant(Struct, frozen=True):
    """What a user allowed a client. `key` is the thumbprint that its tokens are bound to, "" for none."""

    id: str
    client: str
    user: User
    scope: str
    resource: str
    key: str = ""
    is_revoked: bool = False
    used: float = 0.0


class Code(Struct, frozen=True):
    """A code that was given out, with its grant."""

    grant: Grant
    redirect_uri: str
    challenge: str
    expires: float
    is_used: bool


def digest(secret: str) -> str:
    """What is kept of a code or a token: they have 256 random bits, which nobody finds by trying."""
    return sha256(secret.encode()).hexdigest()


class Store:
    """Opens, or makes, the file at `path` (mode 0600); "" is the memory of this process. Raises ConfigurationError."""

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "mcpd-auth-store")
        try:
            self._db = self._thread.submit(_open, path).result()
        except (OSError, sqlite3.Error) as error:
            self._thread.shutdown()
            raise ConfigurationError(f"state {printable(path)}: {printable(error)}") from None

    def close(self) -> None:
        """Close the file."""
        self._thread.submit(self._db.close)
        self._thread.shutdown()

    async def _run(self, step: Callable[[float], T]) -> T:
        """One step in one transaction; it gets the time."""

        def run() -> T:
            with self._db:
                return step(self._clock())

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def now(self, step: Callable[[float], T]) -> T:
        """The same for who can wait: at the start."""

        def run() -> T:
            with self._db:
                return step(self._clock())

        return self._thread.submit(run).result()

    # -- the server's own --------------------------------------------------------------------

    def secret(self) -> bytes:
        """A secret of this server: made once."""

        def step(now: float) -> bytes:
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('secret', ?)", (os.urandom(32),))
            found: bytes = self._db.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()[0]
            return found

        return self.now(step)

    def signing_keys(self) -> list[tuple[str, float]]:
        """The signing keys as JWK, with when each was made; the newest first."""
        return self.now(lambda _: self._db.execute("SELECT jwk, created FROM keys ORDER BY created DESC").fetchall())

    def add_key(self, kid: str, jwk: str) -> None:
        """Keep one key more."""
        self.now(lambda now: self._db.execute("INSERT INTO keys VALUES (?, ?, ?)", (kid, jwk, now)))

    def drop_keys(self, before: float) -> None:
        """Forget the keys that were made before."""
        self.now(lambda _: self._db.execute("DELETE FROM keys WHERE created < ?", (before,)))

    # -- clients -----------------------------------------------------------------------------

    async def add_client(self, client: Client, address: str) -> None:
        """Keep a registration. Of too many that nobody used, one of the address that has most goes. AUTH-144."""

        def step(now: float) -> None:
            self._db.execute(
                "DELETE FROM clients WHERE (used IS NULL AND created < ?) OR used < ?",
                (now - UNCONFIRMED_SECONDS, now - UNUSED_SECONDS),
            )
            count = self._db.execute("SELECT COUNT(*) FROM clients WHERE used IS NULL").fetchone()[0]
            if count >= MOST_UNCONFIRMED:
                self._db.execute(
                    "DELETE FROM clients WHERE id = (SELECT id FROM clients WHERE used IS NULL AND address = (SELECT "
                    "address FROM clients WHERE used IS NULL GROUP BY address ORDER BY COUNT(*) DESC LIMIT 1) "
                    "ORDER BY created LIMIT 1)"
                )
            row = (client.id, encode(client).decode(), address, now)
            self._db.execute("INSERT INTO clients VALUES (?, ?, ?, ?, NULL)", row)

        await self._run(step)

    async def client(self, id: str) -> Client | None:
        """A registered client, None if there is none any more."""

        def step(now: float) -> Client | None:
            row = self._db.execute("SELECT data, created, used FROM clients WHERE id = ?", (id,)).fetchone()
            if row is None:
                return None
            data, created, used = row
            is_over = created < now - UNCONFIRMED_SECONDS if used is None else used < now - UNUSED_SECONDS
            return None if is_over else decode(data, type=Client)

        return await self._run(step)

    # -- grants ------------------------------------------------------------------------------

    async def add_grant(
        self, grant: Grant, code: str, redirect_uri: str, challenge: str, seconds: float, upstream: bytes | None
    ) -> None:
        """Keep what a user allowed, and the code for it."""

        def step(now: float) -> None:
            # What came to nothing, and what nobody can use any more.
            self._db.execute("DELETE FROM codes WHERE expires < ?", (now - 86400,))
            self._db.execute(
                "DELETE FROM grants WHERE created < ? "
                "AND NOT EXISTS (SELECT 1 FROM refresh WHERE grant_id = grants.id) "
                "AND NOT EXISTS (SELECT 1 FROM codes WHERE grant_id = grants.id)",
                (now - 86400,),
            )
            user = encode(grant.user).decode()
            row = (grant.id, grant.client, user, grant.scope, grant.resource, grant.key, now, now, upstream)
            self._db.execute("INSERT INTO grants VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?)", row)
            self._db.execute(
                "INSERT INTO codes VALUES (?, ?, ?, ?, ?, NULL)",
                (digest(code), grant.id, redirect_uri, challenge, now + seconds),
            )

        await self._run(step)

    async def code(self, code: str) -> Code | None:
        """A code that was given out, also if it is over or used."""

        def step(now: float) -> Code | None:
            row = self._db.execute(
                "SELECT grant_id, redirect_uri, challenge, expires, used FROM codes WHERE digest = ?", (digest(code),)
            ).fetchone()
            grant = None if row is None else self._grant(row[0])
            return None if grant is None else Code(grant, row[1], row[2], row[3], row[4] is not None)

        return await self._run(step)

    async def use_code(self, code: str, refresh: str | None, key: str) -> bool:
        """Use a code, once: False, and its grant revoked, if it was used before.

        `refresh` is the first of its family.
        """

        def step(now: float) -> bool:
            row = self._db.execute("SELECT grant_id, used FROM codes WHERE digest = ?", (digest(code),)).fetchone()
            if row is None:
                return False
            grant_id, used = row
            if used is not None:
                self._revoke(grant_id, now)
                return False

            self._db.execute("UPDATE codes SET used = ? WHERE digest = ?", (now, digest(code)))
            self._db.execute("UPDATE grants SET used = ?, key = ? WHERE id = ?", (now, key, grant_id))
            self._db.execute(
                "UPDATE clients SET used = ? WHERE id = (SELECT client FROM grants WHERE id = ?)", (now, grant_id)
            )
            if refresh is not None:
                self._db.execute("INSERT INTO refresh VALUES (?, ?, ?, NULL)", (digest(refresh), grant_id, now))
            return True

        return await self._run(step)

    async def refresh(self, token: str) -> Grant | None:
        """The grant of a refresh token, None if there is none; also of one that was used."""

        def step(now: float) -> Grant | None:
            row = self._db.execute("SELECT grant_id FROM refresh WHERE digest = ?", (digest(token),)).fetchone()
            return None if row is None else self._grant(row[0])

        return await self._run(step)

    async def rotate(self, token: str, successor: str, grace: float) -> Rotation:
        """Exchange a refresh token for its successor: `again` within the grace time, `reused` revokes all. AUTH-131."""

        def step(now: float) -> Rotation:
            row = self._db.execute("SELECT grant_id, used FROM refresh WHERE digest = ?", (digest(token),)).fetchone()
            if row is None:
                return "unknown"
            grant_id, used = row
            if used is not None:
                if now - used <= grace:
                    return "again"
                self._revoke(grant_id, now)
                return "reused"

            self._db.execute("UPDATE refresh SET used = ? WHERE digest = ?", (now, digest(token)))
            self._db.execute("INSERT INTO refresh VALUES (?, ?, ?, NULL)", (digest(successor), grant_id, now))
            # The last few are enough to see that an old one is used; without this, a family grows for ever.
            self._db.execute(
                "DELETE FROM refresh WHERE grant_id = ? AND digest NOT IN "
                "(SELECT digest FROM refresh WHERE grant_id = ? ORDER BY created DESC LIMIT 1000)",
                (grant_id, grant_id),
            )
            self._db.execute("UPDATE grants SET used = ? WHERE id = ?", (now, grant_id))
            self._db.execute(
                "UPDATE clients SET used = ? WHERE id = (SELECT client FROM grants WHERE id = ?)", (now, grant_id)
            )
            return "new"

        return await self._run(step)

    async def revoke(self, grant_id: str) -> None:
        """End all that a user allowed with this grant."""
        await self._run(lambda now: self._revoke(grant_id, now))

    def _revoke(self, grant_id: str, now: float) -> None:
        self._db.execute(
            "UPDATE grants SET revoked = ?, upstream = NULL WHERE id = ? AND revoked IS NULL", (now, grant_id)
        )

    async def grant(self, grant_id: str) -> Grant | None:
        """A grant by its id."""
        return await self._run(lambda _: self._grant(grant_id))

    def _grant(self, grant_id: str) -> Grant | None:
        row: Any = self._db.execute(
            "SELECT id, client, user, scope, resource, key, revoked, used FROM grants WHERE id = ?", (grant_id,)
        ).fetchone()
        if row is None:
            return None
        id, client, user, scope, resource, key, revoked, used = row
        return Grant(id, client, decode(user, type=User), scope, resource, key, revoked is not None, used)

    async def upstream(self, grant_id: str) -> bytes | None:
        """What was kept of the provider's tokens, sealed."""

        def step(now: float) -> bytes | None:
            row = self._db.execute("SELECT upstream FROM grants WHERE id = ?", (grant_id,)).fetchone()
            return None if row is None else row[0]

        return await self._run(step)

    async def keep_upstream(self, grant_id: str, sealed: bytes) -> None:
        """Keep others in their place."""

        def step(now: float) -> None:
            self._db.execute("UPDATE grants SET upstream = ? WHERE id = ? AND revoked IS NULL", (sealed, grant_id))

        await self._run(step)

    async def is_new_assertion(self, text: str, expires: float) -> bool:
        """Whether an assertion with this id was not shown before. RFC 7523 3."""

        def step(now: float) -> bool:
            self._db.execute("DELETE FROM assertions WHERE expires < ?", (now,))
            count = self._db.execute("SELECT COUNT(*) FROM assertions").fetchone()[0]
            if count >= MOST_ASSERTIONS:
                return False
            try:
                self._db.execute("INSERT INTO assertions VALUES (?, ?)", (digest(text), expires))
            except sqlite3.IntegrityError:
                return False
            return True

        return await self._run(step)


def _open(path: str) -> sqlite3.Connection:
    if path:
        # Made here, as SQLite would make it readable for others; what it makes beside it has the same mode.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        mode = os.fstat(descriptor).st_mode
        os.close(descriptor)
        if mode & 0o077:
            raise OSError(f"others can read it, and it holds keys; run: chmod 600 {path}")
    db = sqlite3.connect(path or ":memory:", timeout=10)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA foreign_keys = ON")
        db.executescript(_SCHEMA)
    except sqlite3.Error:
        db.close()
        raise
    return db
