"""A server that knows who calls."""

from collections.abc import Mapping

from mcpd import ANONYMOUS, Authenticator, Context, Principal, Refusal, Server


async def ask_the_issuer(headers: Mapping[str, str]) -> Principal | Refusal:
    if "authorization" not in headers:
        return Refusal(401, "Send a token.", (("WWW-Authenticate", "Bearer"),))
    return Principal("ada", issuer="https://idp", client="cli", scopes={"read"}, claims={"team": "red"})


def let_everybody_in(headers: Mapping[str, str]) -> Principal:
    return ANONYMOUS


known: list[Authenticator] = [ask_the_issuer, let_everybody_in]
server = Server("garden", authenticate=known[0], authenticate_timeout=2.5)
app = server.asgi_app(authenticate=known[1])


@server.tool
async def who(ctx: Context) -> str:
    """Say who calls."""
    name: str = ctx.user.subject
    scopes: frozenset[str] = ctx.user.scopes
    team: object = ctx.user.claims["team"]
    agent: str | None = ctx.headers.get("user-agent")
    return f"{name} {sorted(scopes)} {team} {agent} {ctx.transport == 'http'}"
