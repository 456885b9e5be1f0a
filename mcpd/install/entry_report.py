"""What is said of one entry, HOST:NAME, at the top of `mcpd doctor`: whether its host makes of it what it says.

An entry that cannot be read at all is told by who reads it.
"""

from __future__ import annotations

from typing import Any

from mcpd.client.targets.configurations import host_files, host_servers
from mcpd.client.targets.hosts import HOSTS, Host
from mcpd.doctor.report import Report
from mcpd.errors import ConfigurationError
from mcpd.install.entry_checks import entry_findings, is_off
from mcpd.protocol.printable import printable


def look_at_entry(target: str, report: Report) -> None:
    """Judge the entry that HOST:NAME names; nothing for other targets."""
    id, colon, name = target.partition(":")
    if not colon or id not in HOSTS:
        return
    host = HOSTS[id]
    try:
        path, entry = _entry(host, name)
    except ConfigurationError:
        return  # it is told where the entry is read
    if not isinstance(entry, dict):
        return

    if is_off(entry):
        advice = "switch it on in the host, or take `disabled` or `enabled` out"
        report.fail("configuration", f"{host.name}: the server is switched off in it", advice, file=path)
    found = list(entry_findings(host, entry))
    for finding in found:
        say = report.fail if finding.is_problem else report.warn
        say("configuration", f"{host.name}: {finding.text}", finding.advice, file=path)
    if not found and not is_off(entry):
        report.ok("configuration", printable(path, 1000), file=path)


def _entry(host: Host, name: str) -> tuple[str, Any]:
    """The file of a host that has this entry, and the entry."""
    for path in host_files(host):
        servers = host_servers(host, path)
        if name in servers:
            return path, servers[name]
    return "", None
