"""What host and server say to each other, written to a file as it passes by: `mcpd trace`, and what reads such files.

`proxy` stands between the two and changes no byte, `recorder` writes, `records` says what is written,
`files` where; `reading` and `showing` are for people who look at it later. `channel` records what a client says itself.
"""
