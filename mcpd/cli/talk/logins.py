"""What the commands about logins share: settings, the server that is meant, the list of what there is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mcpd.cli.talk.reach import Reach, named_target
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import missing_extra
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client.auth.settings import OAuth
    from mcpd.client.auth.store import Login
    from mcpd.client.targets.named import UrlTarget


def oauth(**said: object) -> OAuth:
    """Settings of a login. Raises ConfigurationError where the package is missing that logging in needs."""
    try:
        from mcpd.client.auth import logins  # noqa: F401 - what it needs may be missing
        from mcpd.client.auth.settings import OAuth
    except ModuleNotFoundError as error:
        raise missing_extra(error, "logging in", "client") from None
    return OAuth(**said)  # type: ignore[arg-type]


def url_target(reach: Reach) -> UrlTarget:
    """The server, which has to be one behind a URL. Raises ConfigurationError, WrongUse."""
    from mcpd.client.targets.named import UrlTarget

    found = named_target(reach)
    if not isinstance(found, UrlTarget):
        raise WrongUse(f"{printable(reach.target or '', 200)} is started, and wants no login: only servers at URLs do")
    return found


async def show_logins(terminal: Terminal, target: str | None, *, as_json: bool) -> int:
    """Print the logins at a server, or all."""
    settings = oauth(interactive=False)
    from mcpd.client.auth.logins import logins

    found = logins(settings, None if target is None else url_target(Reach(target=target)).url)
    if as_json:
        from mcpd.cli.talk.content import one_line

        terminal.out_json(one_line([_for_programs(one) for one in found]))
        return 0 if found else 1
    if not found:
        where = "anywhere" if target is None else f"at {target}"
        terminal.note(f"mcpd: you are not logged in {where}; to log in: mcpd login {target or 'URL'}")
        return 1
    for login in found:
        terminal.out(login.url)
        terminal.out(f"  issuer   {login.issuer}")
        terminal.out(f"  client   {printable(login.client_id)}")
        terminal.out(f"  scopes   {' '.join(login.granted) or 'none were named'}")
        terminal.out(f"  lasts    {lasts(login)}")
    return 0


def lasts(login: Login) -> str:
    """How long a login lasts, in words."""
    bound = "; bound to a key of this machine" if login.token_type == "DPoP" else ""
    if login.refresh_token is not None:
        return f"until its authorization server ends it{bound}"
    if login.expires_at is None:
        return f"it does not say{bound}"
    left = login.expires_at - time.time()
    if left <= 0:
        return f"no more: mcpd login {login.url}"
    return f"{round(left / 60) or 1} min{bound}"


def _for_programs(login: Login) -> dict[str, object]:
    return {
        "url": login.url, "issuer": login.issuer, "clientId": login.client_id, "scopes": list(login.granted),
        "expiresAt": login.expires_at, "isRefreshed": login.refresh_token is not None,
    }  # fmt: skip
