"""Records what a host and a server send to each other (`mcpd trace`), and prints such recordings.

`proxy` runs the server for the host; begin reading there. `reading` turns the records of a file into entries and
prints them. The format and the recorder are not here but in `transports.recorder`, because the server, the client and
the preview record in the same way.
"""
