"""The commands of `mcpd`, one module per subject; `cli/group.py` has the table of them.

A module is loaded when one of its commands runs. It reads the options, calls the package that does the work and prints
the result. Code that several client commands need is in `cli/client_options.py` and `cli/talk/`.
"""
