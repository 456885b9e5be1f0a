"""Secrets of logins in the system's keyring, so that the file has only an index of them. Needs the package keyring."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from mcpd.client.auth.records import Kept, Login, Registration
from mcpd.errors import ConfigurationError

_SERVICE = "mcpd"


class _Secrets(Struct):
    access_token: str = ""
    refresh_token: str | None = None
    client_secret: str | None = None
    dpop_key: dict[str, Any] | None = None


class _Keyring(Protocol):
    def get_password(self, service: str, name: str, /) -> str | None: ...

    def set_password(self, service: str, name: str, secret: str, /) -> None: ...

    def delete_password(self, service: str, name: str, /) -> None: ...


class KeyringSecrets:
    """A `Vault` of the system's."""

    def __init__(self, keyring: _Keyring | None = None) -> None:
        self._keyring = keyring if keyring is not None else _installed()
        self._known: set[str] = set()

    def fill(self, kept: Kept) -> Kept:
        """What the index names, with its secrets; a login whose secrets are gone is one no more."""
        logins = []
        for login in kept.logins:
            found = self._get(_name(login))
            if found is not None and found.access_token:
                logins.append(
                    replace(
                        login, access_token=found.access_token, refresh_token=found.refresh_token,
                        client_secret=found.client_secret, dpop_key=found.dpop_key,
                    )
                )  # fmt: skip
        registrations = []
        for registration in kept.registrations:
            found = self._get(_name(registration)) if registration.method != "none" else _Secrets()
            if found is not None:
                registrations.append(replace(registration, client_secret=found.client_secret))
        return replace(kept, logins=logins, registrations=registrations)

    def strip(self, kept: Kept) -> Kept:
        """Put the secrets into the keyring, and take those out that nobody names any more; gives the index."""
        said: dict[str, _Secrets] = {}
        for login in kept.logins:
            said[_name(login)] = _Secrets(login.access_token, login.refresh_token, login.client_secret, login.dpop_key)
        for registration in kept.registrations:
            if registration.client_secret is not None:
                said[_name(registration)] = _Secrets(client_secret=registration.client_secret)
        for name, secrets in said.items():
            self._call("set_password", name, encode(secrets).decode())
        for name in self._known - set(said):
            self._call("delete_password", name)
        self._known = set(said)
        return replace(
            kept,
            logins=[
                replace(one, access_token="", refresh_token=None, client_secret=None, dpop_key=None)
                for one in kept.logins
            ],
            registrations=[replace(one, client_secret=None) for one in kept.registrations],
        )

    def _get(self, name: str) -> _Secrets | None:
        text = self._call("get_password", name)
        if text is None:
            return None
        self._known.add(name)
        try:
            return Decoder(_Secrets).decode(text)
        except (DecodeError, ValidationError):
            return None

    def _call(self, what: str, *words: str) -> str | None:
        try:
            found: str | None = getattr(self._keyring, what)(_SERVICE, *words)
            return found
        except Exception as error:
            # Each platform's keyring has errors of its own; none of them is to show what was to be kept.
            raise ConfigurationError(
                f"the system's keyring does not answer ({type(error).__name__}): unlock it, or keep logins in the file"
            ) from None


def _name(record: Login | Registration) -> str:
    if isinstance(record, Login):
        return f"login {record.url} {record.issuer} {record.client_id}"
    return f"registration {record.issuer}"


def _installed() -> _Keyring:
    try:
        import keyring
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "keyring":
            raise
        raise ConfigurationError(
            "the system's keyring is reached with the package keyring: pip install 'mcpd-server[keyring]'"
        ) from None
    found: _Keyring = keyring
    return found
