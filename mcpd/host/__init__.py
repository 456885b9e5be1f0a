"""MCP Apps, the host's part: everything a program needs to show other people's Views safely.

    visibility    which of a server's tools the model may see and which a View may call
    document      a `ui://` resource read and checked
    csp           the policy, sandbox tokens and `allow` attribute of a View
    context       what a View is told about its surroundings
    theme         a complete set of style variables
    partial_json  unfinished tool arguments, closed so that they can be shown
    view          the life of one View: a state machine without I/O
      messages      every params and result struct between host and View
      capabilities  what each side can do
      requests      what a View may ask for, one function per method
      policy        limits, links, downloads, display modes
      launch        the call that opened the View: input, partials, result
      pending       requests in flight, both ways
      app_tools     tools that a View offers
      events        what the machine tells the program

Nothing in these modules does I/O, starts a task or looks at a clock.
"""

from __future__ import annotations

__all__: list[str] = []
