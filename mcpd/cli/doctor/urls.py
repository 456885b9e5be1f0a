"""Tries a server behind a URL: the network first (name, connection, certificate), then HTTP or WebSocket."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
import time
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from mcpd.client.targets.named import UrlTarget
from mcpd.protocol.printable import printable
from .offers import try_client
from .report import Report

_SOON_DAYS = 14
_SECONDS = 10.0
_PORTS = {"https": 443, "wss": 443, "http": 80, "ws": 80}


async def try_url(target: UrlTarget, report: Report, timeout: float) -> None:
    """Take all steps. `timeout` is how many seconds the server has for each response."""
    if target.url.startswith("ws"):
        if await try_network(target, report):
            await try_client(target, report, timeout)
        return

    try:
        from .http import try_http  # needs an extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mcpd"):
            raise
        text = f"servers behind http:// URLs need the package {error.name}, which is not installed"
        report.fail("found", text, "pip install 'mcpd-server[client]'")
        return

    if await try_network(target, report):
        await try_http(target, report, timeout)


async def try_network(target: UrlTarget, report: Report) -> bool:
    """Check the socket, or the name, connection and certificate. Returns whether the server can be reached."""
    if target.socket is not None:
        return _has_socket(target.socket, report)
    url = urlsplit(target.url)
    host, port = url.hostname or "", url.port or _PORTS[url.scheme]
    if proxy := _proxy(url.scheme, host, port):
        kind = proxy.partition("://")[0] if "://" in proxy else "http"
        if kind not in (("http",) if url.scheme in ("ws", "wss") else ("http", "https")):
            text = f"your environment names a {kind} proxy, {proxy}, which mcpd cannot use"
            report.fail("proxy", text, f"name an http://host:port proxy, or avoid it with NO_PROXY={host}")
            return False
        advice = "hosts that do not use it need another way; NO_PROXY=HOST avoids it"
        report.ok("proxy", f"requests go through {proxy}, which your environment names", advice=advice)
        return True

    addresses = await _resolve(host, port, report)
    if not addresses or not await _connect(host, port, addresses, report):
        return False
    return url.scheme not in ("https", "wss") or await _secure(target, url, host, port, report)


def _proxy(scheme: str, host: str, port: int) -> str:
    proxies = getproxies()
    named = proxies.get(scheme.replace("ws", "http")) or proxies.get("all")
    if not named or proxy_bypass(f"{host}:{port}") or proxy_bypass(host):
        return ""
    scheme, sign, rest = named.rpartition("://")
    return printable(f"{scheme.lower()}{sign}{rest.rpartition('@')[2]}")


def _has_socket(path: str, report: Report) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        report.fail("socket", f"{path}: {error.strerror}", "is the server running, and does it listen there?")
        return False
    if not stat.S_ISSOCK(mode):
        report.fail("socket", f"{path} is not a socket", "name the socket that the server creates")
        return False
    if not os.access(path, os.W_OK):
        report.fail("socket", f"you are not allowed to connect to {path}", "ask its owner for write permission")
        return False
    report.ok("socket", path)
    return True


async def _resolve(host: str, port: int, report: Report) -> list[str]:
    with suppress(ValueError):
        return [str(ip_address(host))]
    began = time.monotonic()
    try:
        async with asyncio.timeout(_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        why = getattr(error, "strerror", None) or "no answer"
        advice = "is the name right? Does it need a VPN? A new name takes a while to be known everywhere"
        report.fail("name (DNS)", f"{printable(host)} has no address: {why}", advice)
        return []

    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    report.ok("name (DNS)", ", ".join(addresses[:4]), seconds=time.monotonic() - began, addresses=addresses)
    return addresses


async def _connect(host: str, port: int, addresses: list[str], report: Report) -> bool:
    failures: dict[str, str] = {}
    worked = ""
    seconds = 0.0
    for address in addresses[:4]:
        began = time.monotonic()
        try:
            async with asyncio.timeout(_SECONDS):
                _, writer = await asyncio.open_connection(address, port)
        except TimeoutError:
            failures[address] = f"no answer within {_SECONDS:g} s"
            continue
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            failures[address] = "refused" if refused else error.strerror or str(error)
            continue
        seconds, worked = seconds or time.monotonic() - began, worked or address
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    reasons = ", ".join(f"{address} {why}" for address, why in failures.items())
    if not worked:
        advice = "is the server running, on this port? Does a firewall let you through?"
        report.fail("connection (TCP)", f"no connection to port {port}: {reasons}", advice)
        return False
    if failures:
        advice = f"also listen there, or give hosts the address {worked}: some try only one"
        report.warn("connection (TCP)", f"{worked} answers, {reasons}", advice, seconds=seconds)
    else:
        report.ok("connection (TCP)", f"port {port} of {printable(host)} answers", seconds=seconds)
    return True


async def _secure(target: UrlTarget, url: SplitResult, host: str, port: int, report: Report) -> bool:
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except (OSError, ssl.SSLError) as error:
        report.fail("certificate (TLS)", f"{target.ca_file}: {error}", "name a PEM file with certificates")
        return False

    began = time.monotonic()
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        report.fail("certificate (TLS)", f"is not trusted: {error.verify_message}", _advice_on(error))
        return False
    except TimeoutError:
        text = f"no answer within {_SECONDS:g} s"
        report.fail("certificate (TLS)", text, f"does the server speak {url.scheme} there?")
        return False
    except OSError as error:  # SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        plain = url.scheme.removesuffix("s")
        advice = f"does it speak plain {plain} there? Then write {plain}://{url.netloc}{url.path}"
        report.fail("certificate (TLS)", f"no TLS connection: {str(reason).replace('_', ' ').lower()}", advice)
        return False

    found = writer.get_extra_info("peercert") or {}
    version = writer.get_extra_info("ssl_object").version()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    _judge_certificate(found, version, time.monotonic() - began, report)
    return True


def _judge_certificate(found: dict[str, object], version: str, seconds: float, report: Report) -> None:
    names_found = found.get("subjectAltName")
    names = [str(name) for _, name in names_found] if isinstance(names_found, tuple) else []
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(found["notAfter"])), UTC)
    days = (ends - datetime.now(UTC)).days
    text = f"trusted, until {ends:%Y-%m-%d}, for {', '.join(map(printable, names[:4]))}; {version}"
    if days < _SOON_DAYS:
        advice = f"renew it: it expires in {days} days"
        report.warn("certificate (TLS)", text, advice, seconds=seconds, names=names, until=ends.isoformat())
    else:
        report.ok("certificate (TLS)", text, seconds=seconds, names=names, until=ends.isoformat())


def _advice_on(error: ssl.SSLCertVerificationError) -> str:
    advice = {
        9: "it is not valid yet: are the clocks of the server and of this machine right?",
        10: "renew it",
        18: "it is self-signed: get one from an authority that hosts trust, such as Let's Encrypt; to try "
        "this one, put SSL_CERT_FILE=FILE before the command, with its PEM file",
        19: "its authority is not trusted here: get one from a known authority, or install that one here; to "
        "try it, put SSL_CERT_FILE=FILE before the command, with the authority's PEM file",
        20: "its chain has a gap: let the server send the intermediate certificates, too (its fullchain file)",
        62: "it is for other names. Is the URL right? Otherwise get one for this name",
        64: "it is for other addresses: write the name that it is for",
    }
    return advice.get(error.verify_code, "get one that this machine trusts: no host connects to this one")
