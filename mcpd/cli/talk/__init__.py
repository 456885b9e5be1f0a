"""A command's talk with a server, without click: `mcpd call`, `list`, `read` and the others are made of it.

    reach      what was said of the server, and from that to an open `Client`; errors become exit codes
    words      which of the words name the server, and which the tool
    arguments  `name=value` and JSON, read by a schema
    kinds      what a schema says of a value, in a few words
    forms      values asked for on the terminal, one after the other
    questions  what the server asks for meanwhile: forms, pages, what a model says
    terminal   stdout, stderr and stdin: colours, a line that is replaced, lines typed
    content    what came back: text to stdout, all else to files
    pictures   images in terminals that show them
    tables     what a server offers, in columns
    calling    `mcpd call`
    completing names for a shell to complete

What `mcpd call` does not need is loaded where it is used.
"""
