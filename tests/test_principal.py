"""A principal is known by issuer, subject and client; headers are shown without credentials."""

from __future__ import annotations

from typing import Any

import pytest

from mcpd import ANONYMOUS, Principal
from mcpd.protocol.principal import Origin


def test_it_is_known_by_issuer_subject_and_client() -> None:
    ada = Principal("ada", issuer="https://idp", client="cli", scopes=["read"], claims={"email": "a@b"})
    refreshed = Principal("ada", issuer="https://idp", client="cli", scopes={"read", "write"})
    assert ada.id == refreshed.id
    assert len(ada.id) == 64
    assert ada != refreshed
    assert hash(ada) == hash(refreshed)
    others = [
        Principal("ada"),
        Principal("ada", issuer="https://idp"),
        Principal("ada", client="cli"),
        Principal("eve", issuer="https://idp", client="cli"),
        Principal("da", issuer="https://idpa", client="cli"),
        Principal("adac", issuer="https://idp", client="li"),
        Principal("", client="cli"),
    ]
    assert len({ada.id, *(other.id for other in others)}) == 8
    assert all(other.is_authenticated for other in others)


def test_nobody_in_particular() -> None:
    assert (ANONYMOUS.id, ANONYMOUS.subject, ANONYMOUS.scopes, dict(ANONYMOUS.claims)) == ("", "", frozenset(), {})
    assert not ANONYMOUS.is_authenticated
    assert Principal("") == ANONYMOUS
    assert repr(ANONYMOUS) == "ANONYMOUS"


def test_it_cannot_be_changed_and_shows_no_claims() -> None:
    claims: dict[str, object] = {"email": "ada@example.com"}
    ada = Principal("ada", issuer="i", scopes=["a"], claims=claims)
    for name in ("subject", "scopes", "claims", "anything"):
        with pytest.raises(AttributeError, match="is immutable"):
            setattr(ada, name, "x")
    with pytest.raises(AttributeError):
        del ada.subject
    with pytest.raises(TypeError):
        ada.claims["email"] = "eve@example.com"  # type: ignore[index]
    claims["email"] = "eve@example.com"
    assert ada.claims == {"email": "ada@example.com"}
    assert repr(ada) == "Principal('ada', issuer='i')"


@pytest.mark.parametrize("wrong", [{"subject": 5}, {"issuer": b"x"}, {"client": None}, {"scopes": "read write"}])
def test_what_it_does_not_take(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="Principal: "):
        Principal(**{"subject": "ada", **wrong})


def test_a_subject_that_is_no_unicode_has_an_id() -> None:
    assert Principal("\ud800").id != Principal("\ud801").id


@pytest.mark.parametrize(
    "name",
    ["Authorization", "authorization", "Cookie", "proxy-authorization", "X-API-Key", "x_api_key", "apikey", "X-Auth",
     "X-Auth-Token", "X-Forwarded-Access-Token", "X-Amz-Security-Token", "Cf-Access-Jwt-Assertion", "DPoP",
     "Ocp-Apim-Subscription-Key", "x-functions-key", "X-Client-Secret", "X-Password", "Sec-WebSocket-Protocol",
     "X-Forwarded-Authorization", "Set-Cookie2"],
)  # fmt: skip
def test_credentials_are_left_out(name: str) -> None:
    assert Origin("http", fields=[(name.encode(), b"secret"), (b"Host", b"h")]).headers() == {"host": "h"}


def test_headers_are_told_by_lower_case_name() -> None:
    fields = [(b"X-Request-ID", b"1"), (b"accept", b"a"), (b"Accept", b"b"), (b"x-name", "ä".encode("latin-1")),
              (b"idempotency-key", b"7"), (b"x-auth-request-email", b"e"), (b"x-keyboard", b"k")]  # fmt: skip
    assert Origin("http", fields=fields).headers() == {
        "x-request-id": "1", "accept": "a, b", "x-name": "ä", "idempotency-key": "7", "x-auth-request-email": "e",
        "x-keyboard": "k",
    }  # fmt: skip
