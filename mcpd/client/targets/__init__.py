"""The targets of a client: a command, a URL, a file, or an entry of a configuration file.

    named           the three kinds of target, after their text was read.
    grammar         reads the text of a target, or the words of a command line; start here.
    configurations  configuration files (`FILE.json:NAME`, `HOST:NAME`), their entries, and URLs.
    hosts           the table of hosts, and where each keeps its configuration.

Nothing here opens a connection or starts a process: that is `mcpd.client.target`. The grammar is imported when a text
is read, because most programs pass a server or a command.
"""
