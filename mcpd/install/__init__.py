"""Telling hosts about a server: `mcpd install`, and what it is made of.

entry        a server as a host is to start or reach it
interpreter  the command by which it starts us, next month too
hosts        which file of a host is written; the table of hosts is `client.targets.hosts`
shapes       an entry as each host writes it
formats/     JSON, TOML and YAML, edited in place
plan         what would change, and the difference to show
launch       a server, started once as a host will
surroundings what a host gives a server: variables, a folder
bites        where a host's limits bite a server
entry_checks an entry as it is written, held to what its host reads
entry_report the same of HOST:NAME, for `mcpd doctor`
health       every server of every host: does it start there
files        reading and writing a file whole; the backup, and the way back
"""
