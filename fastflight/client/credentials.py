"""What a client sends with each call: its credentials, and the request id and trace that the call belongs to.

A token is sent only over TLS or within this computer, and never to other hosts that an endpoint names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pyarrow import flight

from fastflight.errors import RequestError
from fastflight.runtime import tracing as trace

TLS = "grpc+tls"
# The characters that a header may hold. A token pasted with spaces or a newline is refused here, not by the server.
TOKEN = re.compile(r"[!-~]{1,512}")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A token, or a client certificate with its key, or both. Certificates and keys are PEM, as bytes.

    `ca`: the CA certificates that verify the server's certificate; None means those of this computer. `server_name`:
    the name in the server's certificate, if it is not the host of the location.
    """

    token: str | None = field(default=None, repr=False)
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    server_name: str | None = None

    def options(self, location: str) -> dict[str, Any]:
        """Return the keyword arguments of a `FlightClient` for `location`.

        Raises `RequestError` if the credentials are malformed, or must not be sent there.
        """
        address = _address(location)
        encrypted = address.scheme == TLS
        if self.token is not None and not TOKEN.fullmatch(self.token):
            raise RequestError("this is not a token", hint="Give it as it was printed, in a line of its own")
        if self.token is not None and not encrypted and not _is_local(address):
            raise RequestError(
                "a token is not sent without TLS to another computer", where=location, hint=f"Use {TLS}://"
            )
        if (self.certificate is None) != (self.key is None):
            raise RequestError("a client's certificate and its key go together", hint="Give both")
        if not encrypted and (self.ca or self.certificate):
            raise RequestError("certificates are for TLS", where=location, hint=f"Use {TLS}://")
        options: dict[str, Any] = {}
        if encrypted:
            options = {"tls_root_certs": self.ca, "cert_chain": self.certificate, "private_key": self.key}
            if self.server_name is not None:
                options["override_hostname"] = self.server_name
        if self.token is not None:
            options["middleware"] = [_TokenMiddlewareFactory(self.token)]
        return options

    def may_follow(self, own: str, location: str) -> bool:
        """Whether credentials for `own` may be sent to `location`: the same host, with TLS if `own` uses TLS."""
        here, there = _address(own), _address(location)
        same_host = here.hostname == there.hostname
        return same_host and (there.scheme == TLS or here.scheme != TLS)


# No token and no certificate; servers are verified by this computer's CA certificates.
NONE = Credentials()


@contextmanager
def traced(traceparent: str = "", *, tracestate: str = "", request_id: str = "") -> Iterator[str]:
    """Make all calls within the block part of a trace, with one request id. Yields that id.

        with traced("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
            client.devices()

    This affects the calls of the current thread or task. Servers that read these headers (`serve --trace`, or with
    tokens) write the trace into each log line. Each call outside such a block has its own id.
    """
    current = trace.client_trace(traceparent, tracestate=tracestate, request_id=request_id)
    with trace.within(current):
        yield current.request_id


def options(timeout: float | None = None) -> flight.FlightCallOptions:
    """Return the options of the next call: its timeout in seconds, and the headers of the current trace."""
    return flight.FlightCallOptions(timeout=timeout, headers=trace.outgoing_headers())


class _TokenMiddlewareFactory(flight.ClientMiddlewareFactory):  # type: ignore[misc]
    """Adds the token to the headers of each call."""

    def __init__(self, token: str) -> None:
        self._headers = {"authorization": f"Bearer {token}"}

    def start_call(self, info: flight.CallInfo) -> _TokenMiddleware:
        return _TokenMiddleware(self._headers)


class _TokenMiddleware(flight.ClientMiddleware):  # type: ignore[misc]
    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    def sending_headers(self) -> dict[str, str]:
        return self._headers


def _address(location: str) -> SplitResult:
    try:
        return urlsplit(location)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _is_local(address: SplitResult) -> bool:
    """Whether an address is one of this computer, judged by its text: names are not resolved."""
    host = address.hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or address.scheme == "grpc+unix"
