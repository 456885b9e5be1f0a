"""Code that client commands such as `mcpd call`, `list` and `read` share; it does not use click.

`connecting` opens a client to the server that a command line names, and turns errors into exit codes. `arguments`
reads and describes values; `questions` asks the user for them. `terminal` prints results; `words` splits command lines.
Start reading in `connecting`.
"""
