"""`[auth]` of mcpd.toml: who may use a server, by the tokens of others or by those that its operator hands out."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

_Url = Annotated[str, Meta(pattern="^https?://[^ #?]+$")]
_Scope = Annotated[str, Meta(pattern="^[!#-\\[\\]-~]+$")]


class _Table(Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """A table whose keys are known."""


class IntrospectionTable(_Table, frozen=True):
    """How an issuer is asked about tokens: `[auth.introspection]`."""

    client_id: Annotated[str, Meta(min_length=1, description="As whom it is asked.")]
    client_secret_file: Annotated[str, Meta(min_length=1, description="The file that holds that client's secret.")]
    endpoint: Annotated[_Url | None, Meta(description="Where it is asked; by default its metadata says.")] = None


class AuthTable(_Table, frozen=True):
    """Authorization: `[auth]`. Flags of `mcpd serve` go before it."""

    public_url: Annotated[_Url | None, Meta(description="The URL of the endpoint that clients use.")] = None
    issuer: Annotated[
        tuple[_Url, ...] | _Url, Meta(description="The authorization server whose tokens are taken; or several.")
    ] = ()
    audience: Annotated[
        tuple[str, ...], Meta(description="What tokens for this server name as aud; by default the public URL.")
    ] = ()
    expect: Annotated[
        dict[str, tuple[str, ...] | str],
        Meta(description="Claims that prove that a token is for this server, where its issuer writes no such aud."),
    ] = {}
    jwks_url: Annotated[_Url | None, Meta(description="Where the issuer's keys are; by default its metadata says.")] = (
        None
    )
    algorithms: Annotated[tuple[str, ...], Meta(description="The signatures that are taken, as ES256.")] = ()
    provider: Annotated[
        str | None, Meta(description="One of the authorization servers that are known by name, instead of issuer.")
    ] = None
    tenant: Annotated[str | None, Meta(description="Your part of that provider, as its domain or realm.")] = None
    introspection: Annotated[
        IntrospectionTable | None, Meta(description="Ask the issuer about each token, as they are not signed.")
    ] = None
    strict: Annotated[bool, Meta(description="True: only tokens of the type at+jwt are taken.")] = False
    dpop: Annotated[
        Literal["off", "accept", "require"],
        Meta(description="Whether tokens that are bound to a key are taken, with a proof, or no others."),
    ] = "off"
    dpop_nonces: Annotated[bool, Meta(description="Proofs need a nonce of this server, as with several processes.")] = (
        False
    )
    skew: Annotated[float, Meta(ge=0, le=300, description="By how many seconds clocks may differ.")] = 60.0
    tokens_file: Annotated[
        str | None, Meta(description="A TOML file with tokens, their names and scopes, instead of an issuer.")
    ] = None
    scopes: Annotated[tuple[_Scope, ...], Meta(description="The scopes that every request needs.")] = ()
    implies: Annotated[
        dict[str, tuple[_Scope, ...]], Meta(description="Scopes that include others, each with a list of these.")
    ] = {}
    resource_name: Annotated[str | None, Meta(description="The server's name for people who log in.")] = None
