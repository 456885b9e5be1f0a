"""Keys that sign access tokens, and other secrets. AUTH-130, AUTH-151."""

from __future__ import annotations

import contextlib
import hmac
import os
from collections.abc import Callable
from hashlib import sha256

from joserfc import jwe, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, OctKey
from msgspec.json import decode, encode

from mcpd.auth.dpop import b64
from mcpd.auth.server.store import Store
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

ROTATE_SECONDS = 90 * 86400
OVERLAP_SECONDS = 2 * 86400
"""Keys sign for `ROTATE_SECONDS` and are published for two more days, because tokens live for an hour and key lists are
cached.
"""


class Keys:
    """Signs tokens, computes MACs and encrypts stored data. `path` is the store's file; the encryption key is beside
    it.
    """

    def __init__(self, store: Store, clock: Callable[[], float], path: str = "") -> None:
        self._path = path
        self._sealing: OctKey | None = None
        self._store = store
        self._clock = clock
        self._secret = store.secret()
        self._keys: list[tuple[ECKey, float]] = []
        self._load()

    def _load(self) -> None:
        """Read the keys. Create one if the newest is too old or missing."""
        now = self._clock()
        self._store.drop_keys(now - ROTATE_SECONDS - OVERLAP_SECONDS)
        found = [(ECKey.import_key(decode(jwk)), created) for jwk, created in self._store.signing_keys()]
        if not found or found[0][1] < now - ROTATE_SECONDS:
            key = ECKey.generate_key("P-256", auto_kid=True)
            self._store.add_key(str(key.kid), encode(key.as_dict(private=True)).decode())
            found.insert(0, (key, now))
        self._keys = found

    def sign(self, claims: dict[str, object], typ: str) -> str:
        """Return a JWT with these claims."""
        if self._keys[0][1] < self._clock() - ROTATE_SECONDS:
            self._load()
        key = self._keys[0][0]
        return jwt.encode({"alg": "ES256", "typ": typ, "kid": key.kid}, claims, key)

    def grant_of(self, token: str) -> str:
        """Return the grant of one of our access tokens, even if it has expired; "" for other tokens."""
        try:
            found = jwt.decode(token, KeySet([key for key, _ in self._keys]), algorithms=["ES256"])
        except (JoseError, ValueError, TypeError, KeyError):
            return ""
        return str(found.claims.get("grant", ""))

    def public(self) -> dict[str, list[dict[str, object]]]:
        """Return the public keys. Spec: RFC 7517 section 5."""
        return {
            "keys": [
                {**key.as_dict(private=False), "use": "sig", "alg": "ES256"}
                for key, created in self._keys
                if created >= self._clock() - ROTATE_SECONDS - OVERLAP_SECONDS
            ]
        }

    def mac(self, purpose: str, text: str) -> str:
        """Return a MAC of a text for one purpose."""
        return b64(hmac.digest(self._secret, f"{purpose}\0{text}".encode(), sha256))

    def seal(self, raw: bytes) -> bytes:
        """Encrypt data with a key that is not in the same file."""
        return jwe.encrypt_compact({"alg": "dir", "enc": "A256GCM"}, raw, self._sealing_key()).encode()

    def unseal(self, sealed: bytes) -> bytes:
        """Decrypt data. Raises ValueError if it was not encrypted with this key."""
        try:
            plain = jwe.decrypt_compact(sealed, self._sealing_key()).plaintext
        except JoseError as error:
            raise ValueError(f"the stored data cannot be decrypted ({type(error).__name__})") from None
        assert plain is not None
        return plain

    def _sealing_key(self) -> OctKey:
        if self._sealing is None:
            self._sealing = OctKey.import_key(_key_file(f"{self._path}.key") if self._path else os.urandom(32))
        return self._sealing


def _key_file(path: str) -> bytes:
    """Return the 32 bytes in a file, which is created with mode 0600 if necessary. Raises ConfigurationError."""
    try:
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(os.urandom(32))
        with open(path, "rb") as file:
            key = file.read(33)
    except OSError as error:
        raise ConfigurationError(f"{printable(path)}: {error.strerror}") from None
    if len(key) != 32:
        raise ConfigurationError(f"{printable(path)}: not a key of 32 bytes")
    return key
