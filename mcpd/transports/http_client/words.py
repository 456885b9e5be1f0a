"""What went wrong below HTTP, in words: which server, what it was, and what to do."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp

from ...errors import CannotConnect, ConnectionLost, TransportError
from ...printable import printable
from .options import HttpOptions

__all__ = ["in_words"]


def in_words(error: Exception, name: str, options: HttpOptions) -> TransportError:
    """An error of the library as one of ours."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        text = f"no connection within {options.connect_seconds:g} s (HttpOptions.connect_seconds)"
        return CannotConnect(f"{name}: {text}")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return CannotConnect(f"{name}: the proxy refused the connection: {error.status} {_said(error.message)}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return CannotConnect(f"{name}: {_connecting(error)}")
    if isinstance(error, aiohttp.ClientResponseError):
        return ConnectionLost(f"{name} answered what is no HTTP: {_said(error.message)}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ConnectionLost(f"{name} closed the connection without an answer")
    if isinstance(error, aiohttp.ClientPayloadError):
        return ConnectionLost(f"{name}: the connection was cut in the middle of an answer")
    if isinstance(error, asyncio.TimeoutError):
        return ConnectionLost(f"{name}: the connection timed out")
    return ConnectionLost(f"{name}: {_said(_reason(error))}")


def _connecting(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection."""
    where = f"{error.host}:{error.port}" if error.port else str(error.host)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {printable(str(error.host))} is not known (DNS): {_said(_reason(error.os_error))}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy cannot be reached: {_said(_reason(error.os_error))} (HTTP_PROXY, HTTPS_PROXY)"
    path = getattr(error, "path", None)  # a unix socket's, whose kind of error is not exported
    if path is not None:
        return f"the socket {printable(path)} cannot be connected to: {_said(_reason(error.os_error))}"

    cause: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif error.os_error is not None:
        cause = error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        said = cause.verify_message or _reason(cause)
        how = "SSL_CERT_FILE=FILE, or HttpOptions(verify=FILE), names one to trust"
        return f"the certificate is not trusted: {_said(said)}; {how}"
    if isinstance(cause, ssl.SSLError):
        return f"no TLS connection: {_said(_reason(cause))}; does the server speak https there?"
    if isinstance(cause, ConnectionRefusedError):
        return f"nothing listens on {where}: the connection was refused"
    return f"no connection to {where}: {_said(_reason(cause))}"


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    strerror = getattr(error, "strerror", None)
    return strerror if isinstance(strerror, str) and strerror else str(error) or type(error).__name__


def _said(text: object) -> str:
    return printable(" ".join(str(text).split()), 300)
