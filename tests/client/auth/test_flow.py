"""The flow without a network: whatever others answer, no request goes where none may, and no secret elsewhere."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given, settings, strategies as st

from mcpd import AuthorizationFailed, OAuth
from mcpd.auth.fetch import FetchError, Response
from mcpd.client.auth.discovery import challenge_of
from mcpd.client.auth.flow import login
from mcpd.client.auth.steps import HttpStep, ListenForRedirect, Network, OpenBrowser
from mcpd.client.auth.store import LoginRecords, Registration
from mcpd.transports.challenge import parse

URL = "https://tools.example/mcp"
ISSUER = "https://as.example"
EVIL = [
    "https://evil.example", "http://evil.example/token", "http://127.0.0.1/token", "javascript:alert(1)",
    "//evil.example", "file:///etc/passwd", "https://as.example@evil.example/", "https://evil.example/#f", "", " ", "https://as.example\n",
    "https://[::1", "ftp://as.example/", "HTTPS://AS.EXAMPLE", "--flag", "$(x)",
]  # fmt: skip
SECRETS = ("secret-code", "secret-client", "secret-token")


def documents(changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    resource = {"resource": URL, "authorization_servers": [ISSUER]}
    server = {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "registration_endpoint": f"{ISSUER}/register",
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
        "authorization_response_iss_parameter_supported": True,
    }
    for name, value in changes.items():
        (resource if name in resource else server)[name] = value
    return {"resource": resource, "server": server}


def drive(
    said: dict[str, dict[str, Any]], kept: LoginRecords, returned: dict[str, str]
) -> tuple[list[HttpStep], list[str]]:
    """All requests and visits of a login to whose questions this is answered."""
    steps = login(URL, OAuth(redirect="http://127.0.0.1:9/cb"), None, kept)
    sent: list[HttpStep] = []
    visits: list[str] = []
    answer: Any = None
    try:
        step = next(steps)
        while len(sent) < 30:
            if isinstance(step, ListenForRedirect):
                answer = "http://127.0.0.1:9/cb"
            elif isinstance(step, OpenBrowser):
                visits.append(step.url)
                state = dict(parse_qsl(urlsplit(step.url).query))["state"]
                query = {"code": "secret-code", "state": state, "iss": ISSUER, **returned}
                answer = "http://127.0.0.1:9/cb?" + "&".join(f"{name}={value}" for name, value in query.items())
            else:
                assert isinstance(step, HttpStep)
                sent.append(step)
                answer = answer_to(step, said)
            step = steps.send(answer)
    except (StopIteration, AuthorizationFailed):
        pass
    return sent, visits


def answer_to(step: HttpStep, said: dict[str, dict[str, Any]]) -> Response:
    found: Any = said["server"]
    if "resource" in step.what:
        found = said["resource"]
    elif step.what == "registration endpoint":
        found = {"client_id": "c", "client_secret": "secret-client"}
    elif step.what == "token endpoint":
        found = {"access_token": "secret-token", "token_type": "Bearer"}
    return Response(200, (), json.dumps(found).encode())


members = st.sampled_from(
    ["resource", "authorization_servers", "issuer", "authorization_endpoint", "token_endpoint", "registration_endpoint"]
)
values = st.one_of(st.sampled_from(EVIL), st.none(), st.integers(), st.lists(st.sampled_from(EVIL), max_size=3))


@settings(max_examples=150)
@given(st.dictionaries(members, values, max_size=3), st.sampled_from(["", "https://evil.example"]), st.booleans())
def test_no_request_leaves_to_where_none_may_go(changes: dict[str, Any], issuer: str, is_registered: bool) -> None:
    """AUTH-165, AUTH-172, AUTH-179, AUTH-189, AUTH-240."""
    kept = LoginRecords()
    if is_registered:
        kept.add_registration(
            Registration(
                issuer=ISSUER,
                client_id="c",
                client_secret="secret-client",
                method="client_secret_post",
                redirect_uri="r",
            )
        )
    sent, visits = drive(documents(changes), kept, {"iss": issuer} if issuer else {})
    for url in [*visits, *(step.url for step in sent)]:
        parts = urlsplit(url)
        assert parts.scheme == "https"
        assert "@" not in parts.netloc
        assert url.isprintable()
    if issuer:
        assert not any(step.what == "token endpoint" for step in sent)
    for step in sent:
        # Codes and secrets go to the token endpoint of metadata whose issuer is the one that was named.
        if any(secret.encode() in (step.body or b"") for secret in SECRETS):
            assert step.what == "token endpoint"
            assert changes.get("issuer", ISSUER) == ISSUER or changes.get("authorization_servers") is not None
        assert not any(secret in step.url for secret in SECRETS)


@pytest.mark.parametrize(
    "url",
    [
        "https://169.254.169.254/token", "https://[::ffff:169.254.169.254]/token", "https://2130706433/token",
        "https://0x7f.1/token", "https://localhost./token", "https://10.0.0.1/token", "https://0.0.0.0/", "https://[::]/",
        "https://[fe80::1]/", "https://127.0.0.1/", "http://tools.example/",
    ],
)  # fmt: skip
async def test_a_public_server_sends_nobody_inside(url: str) -> None:
    """AUTH-240, AUTH-241, AUTH-242, AUTH-243: refused before anything is connected."""
    with pytest.raises(FetchError):
        await Network(URL, reach=()).send(HttpStep(url, "token endpoint", "POST", body=b"secret"))


async def test_a_server_of_this_machine_may_not_send_us_to_a_private_network() -> None:
    """AUTH-242: only by option; what no request goes to stays closed then, too."""
    step = HttpStep("https://10.255.255.1/x", "token endpoint")
    with pytest.raises(FetchError, match="private"):
        await Network("http://127.0.0.1/mcp").send(step)
    with pytest.raises(FetchError, match="a reserved address"):
        await Network("http://127.0.0.1/mcp", allow_private=True).send(HttpStep("https://169.254.169.254/", "x"))


@pytest.mark.parametrize(
    ("lines", "metadata", "scopes"),
    [
        (['Bearer error_description="scope=evil, resource_metadata=x", scope="right"'], None, ("right",)),
        (['Basic realm="x", Bearer resource_metadata="https://a.example/m", scope="a b"'], "https://a.example/m",
         ("a", "b")),
        (["Bearer", 'DPoP resource_metadata="https://a.example/m"'], "https://a.example/m", ()),
        (['Bearer scope="never closed'], None, ()),
        (['Bearer resource_metadata="https://first.example", DPoP resource_metadata="https://2.example", scope="b"'],
         "https://first.example", ()),
        (["Negotiate abc=="], None, None),
        (["Bearer " + ", ".join(f'p{n}="v"' for n in range(1000)) + ', scope="x"'], None, ("x",)),
        (["Bearer " + "a" * 70_000], None, None),
    ],
)  # fmt: skip
def test_what_a_challenge_asks_for(lines: list[str], metadata: str | None, scopes: tuple[str, ...] | None) -> None:
    """AUTH-160: scope and metadata of one challenge, whichever way others stand around it."""
    found = challenge_of(parse(lines))
    if scopes is None:
        assert found is None
        return
    assert found is not None
    assert (found.params.get("resource_metadata"), found.scopes) == (metadata, scopes)


def test_no_step_shows_what_it_carries() -> None:
    """AUTH-057."""
    step = HttpStep("https://as.example/token?x=secret-1", "token endpoint", "POST", (("A", "secret-2"),), b"secret-3")
    answer = Response(200, (("x", "secret-4"),), b"secret-5")
    visit = OpenBrowser("https://as.example/authorize?state=secret-6")
    assert "secret-" not in f"{step!r}{answer!r}{visit!r}"
