"""The middlewares of Flight calls: they identify the caller, and read the call's request id and trace.

`Authentication` runs before the handler, and before the messages of a stream are read. It checks the `Authorization`
header of each call: `Bearer TOKEN`, or `Basic` with a name and a token, as browsers and Flight's own
`authenticate_basic_token` send it. The handshake answers with the token as a bearer header. A client without the header
is identified by its certificate, if the server asks for certificates. TLS has verified the certificate by then. Arrow
gives its first alternative name (or else its common name) only to the handler, so that case is decided there, by
`Authentication.identity`.

A do_action call without a valid proof passes as `NOBODY`, because load balancers need `health`. Its body has been read
before: gRPC reads the message of every call with a single request message before any middleware runs.

Every answer has an `x-request-id` header (`begin`). The ids and traces that clients send are read only if the server is
configured to do so (`Headers`): that takes a middleware, and one more call into Python costs a tenth of the time of a
small answer.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pyarrow import flight

from fastflight.access.authenticator import Authenticator
from fastflight.access.identity import NOBODY, Identity, unproven
from fastflight.access.tokens import bearer, parse_authorization
from fastflight.errors import Unauthenticated
from fastflight.runtime import tracing
from fastflight.runtime.tracing import Trace
from fastflight.server.status import flight_error

# The name under which the handlers find the middleware.
KEY = "identity"
HEADER = "authorization"


class Authentication(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Authenticates the caller of each call.

    With `by_certificate`, a call without an `Authorization` header is left to the handler.
    """

    def __init__(self, authenticator: Authenticator, by_certificate: bool) -> None:
        self._authenticator = authenticator
        self._by_certificate = by_certificate

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> Proof:
        proof = self._proof(info, headers.get(HEADER, []))
        proof.trace = tracing.from_headers(headers)
        return proof

    def _proof(self, info: flight.CallInfo, values: list[str]) -> Proof:
        for_action = info.method == flight.FlightMethod.DO_ACTION
        try:
            if not values and self._by_certificate:
                return Proof(None, for_action=for_action)
            if len(values) != 1:
                raise unproven()
            identity = self._authenticator.authenticate(values[0])
        except Unauthenticated as error:
            if for_action:
                return Proof(NOBODY)
            raise flight_error(error) from None
        return Proof(identity, _as_bearer(values[0]) if info.method == flight.FlightMethod.HANDSHAKE else "")

    def identity(self, context: flight.ServerCallContext) -> Identity:
        """Return the identity of the caller. Call this from the handler.

        Without a valid proof, return `NOBODY` for a do_action call, and raise `Unauthenticated` for all others.
        """
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
    """The identity that the header of one call proved; None if it had no header, but perhaps a certificate."""

    # The request id and trace of the call.
    trace: Trace

    def __init__(self, identity: Identity | None, answer: str = "", *, for_action: bool = False) -> None:
        """`answer` is the value of the `Authorization` header of the answer; empty for none."""
        self.identity = identity
        self.for_action = for_action
        self._answer = answer

    def sending_headers(self) -> dict[str, str]:
        return {HEADER: self._answer} if self._answer else {}

    def call_completed(self, exception: BaseException | None) -> None:
        """Do nothing."""


def _as_bearer(authorization: str) -> str:
    _, token = parse_authorization(authorization)
    return bearer(token)


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Makes Flight offer the handshake, which it does only with a handler. The middleware authenticates the caller."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Do nothing: the middleware has authenticated the caller."""

    def is_valid(self, token: bytes) -> str:
        """Accept every call: the middleware has authenticated the caller."""
        return ""


class Headers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads the request id and trace of each call."""

    NAME: ClassVar[str] = "fastflight.headers"

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> CallTrace:
        return CallTrace(tracing.from_headers(headers))


class CallTrace(flight.ServerMiddleware):  # type: ignore[misc]
    """The request id and trace of one call."""

    def __init__(self, call_trace: Trace) -> None:
        self.trace = call_trace


def begin(context: flight.ServerCallContext, trace_middleware: str | None) -> None:
    """Enter the trace of the handler's call, and send its request id to the client.

    `trace_middleware` is the name of the middleware that has the `trace` of each call, if there is one.
    """
    call_trace: Trace = (
        tracing.new_trace() if trace_middleware is None else context.get_middleware(trace_middleware).trace
    )
    context.add_header(tracing.REQUEST_ID, call_trace.request_id)
    tracing.enter(call_trace)
