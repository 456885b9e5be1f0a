"""The commands of `mcpd`, one module per subject; `cli/group.py` has the table of them.

A module is loaded when one of its commands runs. It reads the options, calls the package that does the work and prints
the result. Options that several commands have are in `cli/options.py`, code that client commands share in `cli/talk/`.
Start reading in `serve.py`, or in the module of the command.
"""
