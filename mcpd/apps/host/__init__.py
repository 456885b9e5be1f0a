"""A host of MCP Apps: what a program needs to show the Views of a server safely.

`host` is the place to start: `Host` connects to a server, calls its tools for the model, and shows their Views on any
message channel. `view` is the state machine of one View and does no I/O; `document` has the policy under which a
browser shows a View. The declarations of a server are in `mcpd.server.extensions.ui`.

A program without asyncio can run a View itself, on any channel of text messages:

    view = View(document, grant(document.csp, document.permissions), settings, tools=listed)
    view.start(now)
    view.tool_input(arguments)                          # and tool_result, context_changed, teardown …
    view.receive(message, now)                          # or view.tick(now), at view.deadline
    for event in view.events(): ...                     # answer, deny or fail each Ask
    for message in view.data_to_send(): ...
"""
