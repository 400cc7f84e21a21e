"""The middlewares of Flight calls: who makes a call, and which request id and trace it has.

`Authentication` runs before the handler, and before what a stream brings is read. It looks at the `Authorization`
header of each call: `Bearer TOKEN`, or `Basic` with a name and a token, as browsers and Flight's own
`authenticate_basic_token` send it; the handshake answers with the token as a bearer. A client without the header is
known by its certificate, where the server asks for one. TLS has proven that then, and Arrow gives its first alternative
name (its common name, if it has none) to the handler alone, which therefore decides.

A call for an action passes without a proof, as nobody's: `health` is for load balancers. Its body has been read before,
as that of every call that is one message: gRPC does so before any middleware runs.

Every answer has `x-request-id` (`begin`). The ids and traces that clients send are read only where the server was told
to read them (`Headers`): that takes a middleware, and to enter Python once more takes a tenth of a small answer.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pyarrow import flight

from fastflight.access.authenticator import Authenticator
from fastflight.access.identity import NOBODY, Identity, unproven
from fastflight.access.tokens import bearer, shown
from fastflight.errors import Unauthenticated
from fastflight.runtime import tracing as trace
from fastflight.runtime.tracing import Trace
from fastflight.server.status import flight_error

# Under which the handlers find the middleware.
KEY = "identity"
HEADER = "authorization"


class Authentication(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Proves who makes each call. `by_certificate`: who shows nothing else is left to the handler."""

    def __init__(self, authenticator: Authenticator, by_certificate: bool) -> None:
        self._authenticator = authenticator
        self._by_certificate = by_certificate

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> Proof:
        proof = self._proof(info, headers.get(HEADER, []))
        proof.trace = trace.of(headers)
        return proof

    def _proof(self, info: flight.CallInfo, given: list[str]) -> Proof:
        for_action = info.method == flight.FlightMethod.DO_ACTION
        try:
            if not given and self._by_certificate:
                return Proof(None, for_action=for_action)
            if len(given) != 1:
                raise unproven()
            identity = self._authenticator.authenticate(given[0])
        except Unauthenticated as error:
            if for_action:
                return Proof(NOBODY)
            raise flight_error(error) from None
        return Proof(identity, _as_bearer(given[0]) if info.method == flight.FlightMethod.HANDSHAKE else "")

    def identity(self, context: flight.ServerCallContext) -> Identity:
        """Who makes the call of a handler. `Unauthenticated`."""
        proof: Proof = context.get_middleware(KEY)
        if proof.identity is not None:
            return proof.identity
        try:
            return self._authenticator.certified(context.peer_identity().decode(errors="replace"))
        except Unauthenticated:
            if proof.for_action:
                return NOBODY
            raise


class Proof(flight.ServerMiddleware):  # type: ignore[misc]
    """What was shown of one call: None for nothing but, perhaps, a certificate."""

    # What request it is, which is read here because headers are.
    trace: Trace

    def __init__(self, identity: Identity | None, answered: str = "", *, for_action: bool = False) -> None:
        self.identity = identity
        self.for_action = for_action
        self._answered = answered

    def sending_headers(self) -> dict[str, str]:
        return {HEADER: self._answered} if self._answered else {}

    def call_completed(self, exception: BaseException | None) -> None:
        """Nothing is to be done."""


def _as_bearer(authorization: str) -> str:
    _, token = shown(authorization)
    return bearer(token)


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets the handshake come to its end: the middleware has proven who makes it. Flight has it only with a handler."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """The header said it all."""

    def is_valid(self, token: bytes) -> str:
        """Asked at each call of what a handler's own login gave: nothing here."""
        return ""


class Headers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads the request id and trace of each call."""

    NAME: ClassVar[str] = "fastflight.headers"

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> CallTrace:
        return CallTrace(trace.of(headers))


class CallTrace(flight.ServerMiddleware):  # type: ignore[misc]
    """The request id and trace of one call."""

    def __init__(self, given: Trace) -> None:
        self.trace = given


def begin(context: flight.ServerCallContext, read_by: str | None) -> None:
    """Enter the trace of the handler's call, and send its request id to the client.

    `read_by`: the name of the middleware that has the `trace` of each call, if there is one.
    """
    given: Trace = trace.made() if read_by is None else context.get_middleware(read_by).trace
    context.add_header(trace.REQUEST_ID, given.request_id)
    trace.enter(given)
