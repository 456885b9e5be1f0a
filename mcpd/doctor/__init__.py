"""`mcpd doctor`: tries a server step by step, as a host would, and says what works, what does not and what to do.

`commands` tries a program and `urls` what runs behind a URL; `offers` looks at what either has. They add steps to a
`report`. Nothing here trusts the server: `child` and `dialogue` take a bounded share of whatever it writes, and never
wait without a limit. The words are for people who have never seen the protocol.
"""
