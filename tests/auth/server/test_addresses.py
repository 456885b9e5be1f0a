"""Who people are by their addresses, behind proxies that may say it and before strangers that may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.login_stage import Stage, stage, users_file

from mcpd.auth.server.settings import Settings, UserFile, address_of, networks_of, rate_limit_key, read
from mcpd.errors import ConfigurationError

PROXIES = networks_of(["10.0.0.0/8", "2001:db8::1"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("10.0.0.1", "1.1.1.1", "1.1.1.1"),
        ("10.0.0.1", "6.6.6.6, 1.1.1.1", "1.1.1.1"),  # what stands before is made up
        ("10.0.0.1", "6.6.6.6, 1.1.1.1, 10.2.3.4", "1.1.1.1"),  # two proxies
        ("10.0.0.1", "1.1.1.1:4711", "1.1.1.1"),
        ("10.0.0.1", '"[2606:4700::1]:4711"', "2606:4700::1"),
        ("::ffff:10.0.0.1", "::ffff:1.1.1.1", "1.1.1.1"),
        ("2001:db8::1", "1.1.1.1", "1.1.1.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "1.1.1.1, unknown", "10.0.0.1"),
        ("10.0.0.1", "1.1.1.1, <script>", "10.0.0.1"),
        ("9.9.9.9", "1.1.1.1", "9.9.9.9"),
        ("", "1.1.1.1", ""),
        ("10.0.0.1", "10.0.0.1," * 100_000, "10.0.0.1"),
    ],
)
def test_what_a_proxy_says_is_believed_of_the_ones_that_were_named(peer: str, forwarded: str, found: str) -> None:
    """AUTH-007, AUTH-147."""
    assert address_of(peer, forwarded, PROXIES) == found
    assert address_of(peer, forwarded, networks_of([])) in (peer, "10.0.0.1")


def test_a_home_of_ipv6_is_one_place() -> None:
    """AUTH-147: its addresses are without number."""
    assert rate_limit_key("2606:4700::1") == rate_limit_key("2606:4700::ffff:1") != rate_limit_key("2606:4701::1")
    assert rate_limit_key("1.1.1.1") != rate_limit_key("1.1.1.2")
    assert rate_limit_key("") == ""


async def guess(there: Stage, address: str, name: str) -> str:
    """Try a wrong password, from that address by what the proxy says."""
    login = await there.login()
    forwarded = [("X-Forwarded-For", address)]
    await login.begin(headers=forwarded)
    fields = {**login.browser.form, "user": name, "password": "wrong"}
    return (await login.browser.post("/oauth/sign-in", fields, headers=forwarded)).text


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_behind_a_proxy_each_has_an_address_of_their_own(tmp_path: Path, is_trusted: bool) -> None:
    """AUTH-147: who tries many names from one address waits, and nobody else does; unasked nobody is believed."""
    settings = Settings(
        users=UserFile(file=str(users_file(tmp_path))), trusted_proxies=("127.0.0.1",) if is_trusted else ()
    )
    async with stage(settings) as there:
        for _ in range(50):
            there.server.core.address_throttle.failed("6.6.6.6")
        told = "oo many wrong passwords"
        assert (told in await guess(there, "6.6.6.6", "bob")) is is_trusted
        assert told not in await guess(there, "1.1.1.1", "bob")
        assert there.server.core.address_throttle.seconds_to_wait("127.0.0.1") == 0


def test_proxies_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    for text in ("proxy.example", "10.0.0.0/33", "10.0.0.1/8"):
        path.write_text(f"trusted-proxies = ['{text}']\n[sign-in.users]\nfile = 'u'\n", encoding="utf-8")
        with pytest.raises(ConfigurationError, match="not an address or network"):
            read(str(path))
