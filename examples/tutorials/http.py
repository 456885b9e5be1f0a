"""A server over HTTP, on its own or in an ASGI server (`uvicorn http:app`)."""

from mcpd import RouteRequest, Server

server = Server("Weather", instructions="Ask for a forecast before you go out.")

FORECASTS = {"London": "Rain.", "Cairo": "Sun."}


@server.tool
def forecast(city: str) -> str:
    """Today's forecast for one city."""
    return f"{city}: {FORECASTS[city]}"


@server.route("/status", public=True)
async def status(request: RouteRequest) -> dict[str, int]:
    return {"cities": len(FORECASTS)}


app = server.asgi_app(allowed_hosts=["mcp.example.com"], allowed_origins=["https://app.example.com"])

if __name__ == "__main__":
    server.run(http=":8080")
