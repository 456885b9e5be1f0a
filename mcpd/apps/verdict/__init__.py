"""`mcpd apps test`: tries the apps of a server and reports what would not work in a strict host.

`run` is the place to start: it reads the `metadata` and the `document` of each app, calls a tool (`calling`), and shows
the app in a `browser`. A `trial` is one showing of it; the findings are a `report`. Commands and their output belong in
`mcpd.cli`.
"""
