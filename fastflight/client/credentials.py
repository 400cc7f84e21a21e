"""What a client sends with each call: its credentials, and the request id and trace that the call is part of.

A token goes to the server that it was given for and to nobody else: over TLS, or within this computer, and not to other
hosts that an endpoint names.
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
# What a header may hold; a token pasted with its quotes or a line's end is found here rather than by the server.
TOKEN = re.compile(r"[!-~]{1,512}")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A token, or a client's certificate with its key, or both; PEM as bytes.

    `ca`: the certificates by which servers are known, those of this computer if None. `server_name`: what the server's
    certificate has to name, where that is not the host of its location.
    """

    token: str | None = field(default=None, repr=False)
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    server_name: str | None = None

    def options(self, location: str) -> dict[str, Any]:
        """For Flight's client to `location`. `RequestError` where they must not be shown there, or cannot be."""
        address = _address(location)
        encrypted = address.scheme == TLS
        if self.token is not None and not TOKEN.fullmatch(self.token):
            raise RequestError("the token is not one", hint="Give it as it was printed, in a line of its own")
        if self.token is not None and not encrypted and not _is_here(address):
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
            options["middleware"] = [_Shows(self.token)]
        return options

    def may_follow(self, own: str, location: str) -> bool:
        """Whether what is shown at `own` may be shown at `location`: on the same host, with TLS where `own` has it."""
        here, there = _address(own), _address(location)
        same_host = here.hostname == there.hostname
        return same_host and (there.scheme == TLS or here.scheme != TLS)


# Shows nothing, and knows servers as this computer does.
NONE = Credentials()


@contextmanager
def traced(traceparent: str = "", *, tracestate: str = "", request_id: str = "") -> Iterator[str]:
    """Make the calls of this thread or task for a trace, with one request id, which is returned.

        with traced("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
            client.devices()

    Servers that read such headers (`serve --trace`, or with tokens) log the trace with each line. A call outside of any
    block has an id of its own.
    """
    made = trace.client_trace(traceparent, tracestate=tracestate, request_id=request_id)
    with trace.within(made):
        yield made.request_id


def options(timeout: float | None = None, authorization: str = "") -> flight.FlightCallOptions:
    """The options of a call that is made now. `authorization` becomes its header, unless it is empty."""
    shown = [(b"authorization", authorization.encode())] if authorization else []
    return flight.FlightCallOptions(timeout=timeout, headers=[*trace.outgoing_headers(), *shown])


class _Shows(flight.ClientMiddlewareFactory):  # type: ignore[misc]
    """Puts the token into each call."""

    def __init__(self, token: str) -> None:
        self._headers = {"authorization": f"Bearer {token}"}

    def start_call(self, info: flight.CallInfo) -> _Shown:
        return _Shown(self._headers)


class _Shown(flight.ClientMiddleware):  # type: ignore[misc]
    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    def sending_headers(self) -> dict[str, str]:
        return self._headers


def _address(location: str) -> SplitResult:
    try:
        return urlsplit(location)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _is_here(address: SplitResult) -> bool:
    """Whether an address is of this computer, by how it is written: names are not looked up."""
    host = address.hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or address.scheme == "grpc+unix"
