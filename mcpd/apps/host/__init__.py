"""MCP Apps, the host's part: everything a program needs to show other people's Views safely.

    visibility    which of a server's tools the model may see and which a View may call
    listed        what lists and reports call the offer of an app
    theme         a complete set of style variables
    partial_json  unfinished tool arguments, closed so that they can be shown
    documents/
      document    a `ui://` resource read and checked
      csp         the policy, sandbox tokens and `allow` attribute of a View
    view/         the life of one View: a state machine without I/O
      view        the program's side of it; begin here
      machine     what the View's messages do to it
      messages    every params and result struct between host and View
      capabilities what each side can do
      context     what a View is told about its surroundings
      events      what the machine tells the program
      policy      settings, limits, links, downloads
      refusals    how a View is told no
      lifecycle   its states, and how long it may stay in each
      announcements what the host tells it by itself, when it may
      reader      from bytes to a message, within limits
      requests    what a View may ask for, one function per method
      notifications what it tells, one function per method
      incoming    its requests: taken, given to the program, answered
      outgoing    ours: ping, teardown, calls of its tools
      opening_call the call that opened the View: input, partials, result
      app_tools   tools that a View offers
      output      messages, events and log lines on their way out

A program that runs a View needs little more than this, on any channel of text messages:

    view = View(document, grant(document.csp, document.permissions), settings, tools=listed)
    view.start(now)
    view.tool_input(arguments)                          # and tool_result, context_changed, teardown …
    view.receive(message, now)                          # or view.tick(now), at view.deadline
    for event in view.events(): ...                     # answer, deny or fail each Ask
    for message in view.data_to_send(): ...

Nothing in these modules does I/O, starts a task or looks at a clock. `Host`, which `mcpd` gives by name, does
all of it for a program on asyncio; its modules are the only ones that do:

    host          connects to a server, calls its tools for the model, shows their Views
      call          one call of a tool, from the first character of its arguments
      shown         one View on a channel: the machine, its clock, its work
      request_handler what a View asked for, carried out
      hooks         what the program decides
      options       settings that seldom change
      treatment   how one View is treated that is not treated as all others
      tool_list     the server's tools, listed again when they change
      conversation  what Views have to say in it
      channels      any two-way stream of messages as a View's channel
      relay         Views over WebSocket, at one-time addresses
      documents.document_cache the documents of Views, read and kept
"""

from __future__ import annotations

__all__: list[str] = []
