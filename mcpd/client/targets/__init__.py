"""The targets of a client: a command, a URL, a file, or an entry of a configuration file.

    named           the three kinds of target; the text of a URL.
    grammar         reads the text of a target, or the words of a command line; start here.
    configurations  configuration files (`FILE.json:NAME`, `HOST:NAME`), and their entries.
    hosts           the table of hosts, and where each keeps its configuration.

Nothing here opens a connection or starts a process: that is `mcpd.client.target`. The grammar is imported when a text
is read, because most programs pass a server or a command.
"""
