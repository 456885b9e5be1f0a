"""The client side of Streamable HTTP in both eras, and of HTTP+SSE from 2024-11-05, as one channel.

    channel     `HttpChannel`: which message is sent when; start here. `HttpSse` is the transport of 2024-11-05
    exchange    one message and its response, the header fields of every request, cookies, and authorization
    pool        HTTP without MCP: connections, redirects, proxies, bodies, error messages
    options     `HttpOptions`, which can be imported without aiohttp

Retries of whole connections are not here: see `mcpd.client.link`.
"""
