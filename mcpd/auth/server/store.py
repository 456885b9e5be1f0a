"""The persistent state in SQLite: keys, registrations, grants, and digests of codes and refresh tokens.

One connection in a thread of its own makes each method atomic. Codes and tokens are stored as digests only. AUTH-124,
AUTH-131, AUTH-144, AUTH-151.
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

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from .clients import Client

T = TypeVar("T")

MAX_UNCONFIRMED = 1000
UNCONFIRMED_SECONDS = 3600
UNUSED_SECONDS = 90 * 86400
MAX_ASSERTIONS = 100_000

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
    """A user who has signed in.

    `subject` never changes, `name` is for people, and `email` is a verified address or "". `scopes` are the scopes that
    the user may grant, None for all. `way` is the name of the sign-in.
    """

    subject: str
    name: str
    way: str
    email: str = ""
    scopes: tuple[str, ...] | None = None


class Grant(Struct, frozen=True):
    """A user's consent for a client. `key` is the thumbprint of the key for its tokens, or ""."""

    id: str
    client: str
    user: User
    scope: str
    resource: str
    key: str = ""
    is_revoked: bool = False
    used: float = 0.0


class Code(Struct, frozen=True):
    grant: Grant
    redirect_uri: str
    challenge: str
    expires: float
    is_used: bool


def digest(secret: str) -> str:
    """Return the stored form of a code or token. They have 256 random bits, which cannot be guessed."""
    return sha256(secret.encode()).hexdigest()


class Store:
    """Opens or creates the file at `path` with mode 0600; "" means memory. Raises ConfigurationError."""

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "mcpd-auth-store")
        try:
            self._db = self._thread.submit(_open, path).result()
        except (OSError, sqlite3.Error) as error:
            self._thread.shutdown()
            raise ConfigurationError(f"state {printable(path)}: {printable(error)}") from None

    def close(self) -> None:
        self._thread.submit(self._db.close)
        self._thread.shutdown()

    def _step(self, step: Callable[[float], T]) -> T:
        # Run one step in a transaction, on the thread. The step receives the time.
        with self._db:
            return step(self._clock())

    async def _run(self, step: Callable[[float], T]) -> T:
        return await asyncio.wrap_future(self._thread.submit(self._step, step))

    def now(self, step: Callable[[float], T]) -> T:
        """Run a step and block, for the start."""
        return self._thread.submit(self._step, step).result()

    # -- the server's own --------------------------------------------------------------------

    def secret(self) -> bytes:
        """Return the secret of this server, which is created once."""

        def step(now: float) -> bytes:
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('secret', ?)", (os.urandom(32),))
            found: bytes = self._db.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()[0]
            return found

        return self.now(step)

    def signing_keys(self) -> list[tuple[str, float]]:
        """Return the signing keys as JWK with their creation times, the newest first."""
        return self.now(lambda _: self._db.execute("SELECT jwk, created FROM keys ORDER BY created DESC").fetchall())

    def add_key(self, kid: str, jwk: str) -> None:
        self.now(lambda now: self._db.execute("INSERT INTO keys VALUES (?, ?, ?)", (kid, jwk, now)))

    def drop_keys(self, before: float) -> None:
        self.now(lambda _: self._db.execute("DELETE FROM keys WHERE created < ?", (before,)))

    # -- clients -----------------------------------------------------------------------------

    async def add_client(self, client: Client, address: str) -> None:
        """Store a registration. If too many are unused, one from the address with the most is deleted. AUTH-144."""

        def step(now: float) -> None:
            self._db.execute(
                "DELETE FROM clients WHERE (used IS NULL AND created < ?) OR used < ?",
                (now - UNCONFIRMED_SECONDS, now - UNUSED_SECONDS),
            )
            count = self._db.execute("SELECT COUNT(*) FROM clients WHERE used IS NULL").fetchone()[0]
            if count >= MAX_UNCONFIRMED:
                self._db.execute(
                    "DELETE FROM clients WHERE id = (SELECT id FROM clients WHERE used IS NULL AND address = (SELECT "
                    "address FROM clients WHERE used IS NULL GROUP BY address ORDER BY COUNT(*) DESC LIMIT 1) "
                    "ORDER BY created LIMIT 1)"
                )
            row = (client.id, encode(client).decode(), address, now)
            self._db.execute("INSERT INTO clients VALUES (?, ?, ?, ?, NULL)", row)

        await self._run(step)

    async def client(self, id: str) -> Client | None:
        """Return a registered client, or None if it is unknown or has expired."""

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
        """Store a grant and its code."""

        def step(now: float) -> None:
            # Unused codes, and grants without codes and refresh tokens.
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
        """Return an issued code, even if it has expired or was used."""

        def step(now: float) -> Code | None:
            row = self._db.execute(
                "SELECT grant_id, redirect_uri, challenge, expires, used FROM codes WHERE digest = ?", (digest(code),)
            ).fetchone()
            grant = None if row is None else self._grant(row[0])
            return None if grant is None else Code(grant, row[1], row[2], row[3], row[4] is not None)

        return await self._run(step)

    async def use_code(self, code: str, refresh: str | None, key: str) -> bool:
        """Use a code once. If it was used before, its grant is revoked and False returned.

        `refresh` is the first refresh token of the grant.
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
            self._db.execute("UPDATE grants SET key = ? WHERE id = ?", (key, grant_id))
            self._touch(grant_id, now)
            if refresh is not None:
                self._db.execute("INSERT INTO refresh VALUES (?, ?, ?, NULL)", (digest(refresh), grant_id, now))
            return True

        return await self._run(step)

    async def refresh(self, token: str) -> Grant | None:
        """Return the grant of a refresh token, even if the token was used, or None."""

        def step(now: float) -> Grant | None:
            row = self._db.execute("SELECT grant_id FROM refresh WHERE digest = ?", (digest(token),)).fetchone()
            return None if row is None else self._grant(row[0])

        return await self._run(step)

    async def rotate(self, token: str, successor: str, grace: float) -> Rotation:
        """Replace a refresh token. A repetition within the grace time gives `again`; later, it revokes the grant.

        Of a revoked grant every token is `unknown`.
        """

        def step(now: float) -> Rotation:
            # The grant may have been revoked since it was read.
            row = self._db.execute(
                "SELECT grant_id, refresh.used FROM refresh JOIN grants ON grants.id = grant_id "
                "WHERE digest = ? AND revoked IS NULL",
                (digest(token),),
            ).fetchone()
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
            # A limited number of old tokens is enough to detect their reuse; otherwise the table would grow forever.
            self._db.execute(
                "DELETE FROM refresh WHERE grant_id = ? AND digest NOT IN "
                "(SELECT digest FROM refresh WHERE grant_id = ? ORDER BY created DESC LIMIT 1000)",
                (grant_id, grant_id),
            )
            self._touch(grant_id, now)
            return "new"

        return await self._run(step)

    def _touch(self, grant_id: str, now: float) -> None:
        # Record that a grant and its client were used.
        self._db.execute("UPDATE grants SET used = ? WHERE id = ?", (now, grant_id))
        self._db.execute(
            "UPDATE clients SET used = ? WHERE id = (SELECT client FROM grants WHERE id = ?)", (now, grant_id)
        )

    async def revoke(self, grant_id: str) -> None:
        await self._run(lambda now: self._revoke(grant_id, now))

    def _revoke(self, grant_id: str, now: float) -> None:
        self._db.execute(
            "UPDATE grants SET revoked = ?, upstream = NULL WHERE id = ? AND revoked IS NULL", (now, grant_id)
        )

    async def grant(self, grant_id: str) -> Grant | None:
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
        select = "SELECT upstream FROM grants WHERE id = ?"
        row = await self._run(lambda _: self._db.execute(select, (grant_id,)).fetchone())
        return None if row is None else row[0]

    async def keep_upstream(self, grant_id: str, sealed: bytes) -> None:
        update = "UPDATE grants SET upstream = ? WHERE id = ? AND revoked IS NULL"
        await self._run(lambda _: self._db.execute(update, (sealed, grant_id)))

    async def is_new_assertion(self, text: str, expires: float) -> bool:
        """Return whether an assertion with this ID was not used before. RFC 7523 section 3."""

        def step(now: float) -> bool:
            self._db.execute("DELETE FROM assertions WHERE expires < ?", (now,))
            count = self._db.execute("SELECT COUNT(*) FROM assertions").fetchone()[0]
            if count >= MAX_ASSERTIONS:
                return False
            try:
                self._db.execute("INSERT INTO assertions VALUES (?, ?)", (digest(text), expires))
            except sqlite3.IntegrityError:
                return False
            return True

        return await self._run(step)


def _open(path: str) -> sqlite3.Connection:
    if path:
        # Created here, because SQLite would make it readable for others. Its other files get the same mode.
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
