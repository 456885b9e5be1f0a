"""`mcpd doctor`: tries a server step by step, as a host would, and reports what works, what does not and what to do.

`program` tries a server that is started, and `urls` a server behind a URL; begin reading there. They add steps to a
`report`. `offers` examines the tools, resources and prompts of either. The server is not trusted: `dialogue` and `web`
read a bounded part of its output, and every wait has a limit. The messages are for people who have never seen the
protocol.
"""
