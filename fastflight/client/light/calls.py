"""gRPC calls over one HTTP/2 connection to a Flight server: one message is sent, messages come back.

Source: "gRPC over HTTP2" (PROTOCOL-HTTP2.md of gRPC). Arrow adds trailers of its own to the status, see `_refusal`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import socket
import time
from collections.abc import Generator, Iterable, Iterator
from enum import IntEnum
from urllib.parse import unquote, urlsplit

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError as Http2Error
from h2.settings import SettingCodes, Settings

from fastflight.client.described import CLASS_OF_NAME, described, no_server, parsed
from fastflight.errors import (
    FastFlightError,
    Forbidden,
    ProtocolError,
    RequestError,
    TransportClosed,
    TransportTimeout,
    Unauthenticated,
    UnknownName,
)

SERVICE = "/arrow.flight.protocol.FlightService/"
# A server of this computer accepts or refuses a connection at once; one that is busy starting takes longer.
CONNECT_SECONDS = 20.0
# What the server may send before it is acknowledged: larger than a batch of a file, so that it need not wait.
WINDOW_BYTES = 4 * 1024 * 1024
SETTINGS = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES}
RECEIVE_BYTES = 256 * 1024
# A fastflight server splits its batches at 2 MiB. Answers of actions are smaller.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# Compressed or not, and the length of the message.
PREFIX_BYTES = 5
SETTINGS_FRAME = b"\x04"
# How Arrow names the class that the server raised.
RAISED_BY_SERVER = re.compile(r"Python exception: (\w+)")

Headers = Iterable[tuple[str, str]]


class Status(IntEnum):
    """gRPC's status codes, as far as they have errors of their own here."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    UNIMPLEMENTED = 12
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class Connection:
    """A connection to the server at `location` (`grpc://host:port`), opened by the first call. One call at a time."""

    def __init__(self, location: str) -> None:
        self.location = location
        address = urlsplit(location)
        self._host, self._port = address.hostname or "", address.port or 0
        self._socket: socket.socket | None = None
        # Whether the server has sent its first bytes.
        self._is_greeted = False
        self._http2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self._http2.local_settings = Settings(client=True, initial_values=SETTINGS)

    def call(
        self, method: str, message: bytes, headers: Headers = (), timeout: float | None = None
    ) -> Generator[bytes, None, None]:
        """Send one message to `method` and yield the messages of the answer. Closing the generator cancels the call.

        Raises the error that the server describes, `TransportTimeout` if the answer has not ended after `timeout`
        seconds, and `TransportError` if the server cannot be reached or the connection is lost.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._socket is None:
            self._connect()
        stream = self._http2.get_next_available_stream_id()
        self._send_headers(stream, method, headers, timeout)
        unsent = b"\0" + len(message).to_bytes(4, "big") + message
        buffer = bytearray()
        has_ended = False
        try:
            while not has_ended:
                unsent = self._send(stream, unsent)
                for event in self._receive(deadline):
                    if isinstance(event, DataReceived) and event.stream_id == stream:
                        self._http2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
                        buffer += event.data or b""
                        yield from self._messages(buffer)
                    elif isinstance(event, ResponseReceived | TrailersReceived) and event.stream_id == stream:
                        self._check({str(name): str(value) for name, value in event.headers or ()})
                    elif isinstance(event, StreamEnded) and event.stream_id == stream:
                        has_ended = True
                    elif isinstance(event, StreamReset | ConnectionTerminated):
                        raise self._lost()
        except (GeneratorExit, TransportTimeout):
            self._cancel(stream)
            raise
        if buffer:
            raise ProtocolError("the answer ended within a message", where=self.location)

    def close(self) -> None:
        """Close the connection. The server cancels a call that still runs."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        try:
            self._socket = socket.create_connection((self._host, self._port), CONNECT_SECONDS)
        except OSError as error:
            raise no_server(self.location) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._http2.initiate_connection()
        self._http2.increment_flow_control_window(WINDOW_BYTES)

    def _send_headers(self, stream: int, method: str, headers: Headers, timeout: float | None) -> None:
        host = f"[{self._host}]" if ":" in self._host else self._host
        limit = [] if timeout is None else [("grpc-timeout", f"{round(timeout * 1000)}m")]
        self._http2.send_headers(
            stream,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", SERVICE + method),
                (":authority", f"{host}:{self._port}"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                *limit,
                *headers,
            ],
        )

    def _send(self, stream: int, data: bytes) -> bytes:
        """Send what the server has room for. Return the rest; it must be sent after the next events."""
        while data:
            size = min(self._http2.local_flow_control_window(stream), self._http2.max_outbound_frame_size, len(data))
            if not size:
                break
            self._http2.send_data(stream, data[:size], end_stream=size == len(data))
            data = data[size:]
        self._flush()
        return data

    def _receive(self, deadline: float | None) -> list[Event]:
        """Wait for the next events of the connection. Answers the server's pings and settings."""
        assert self._socket is not None
        try:
            self._socket.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
            data = self._socket.recv(RECEIVE_BYTES)
            if data and not self._is_greeted:
                _check_greeting(data)
                self._is_greeted = True
            events = self._http2.receive_data(data) if data else []
        except TimeoutError as error:
            raise TransportTimeout(
                "the server did not answer in time", where=self.location, hint="Allow a longer timeout"
            ) from error
        except OSError as error:
            raise self._lost() from error
        except Http2Error as error:
            if self._http2.state_machine.state == ConnectionState.CLOSED:  # more came after the server's last word
                raise self._lost() from error
            raise ProtocolError("this is not a Flight server", where=self.location) from error
        if not data:
            raise self._lost()
        self._flush()
        return events

    def _flush(self) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(self._http2.data_to_send())
        except OSError as error:
            raise self._lost() from error

    def _cancel(self, stream: int) -> None:
        """Have the server cancel a call. What of its answer is on the way is ignored."""
        with contextlib.suppress(Http2Error, FastFlightError):
            self._http2.reset_stream(stream, ErrorCodes.CANCEL)
            if self._socket is not None:
                self._flush()

    def _messages(self, buffer: bytearray) -> Iterator[bytes]:
        """Take the complete messages out of `buffer`."""
        while len(buffer) >= PREFIX_BYTES:
            end = PREFIX_BYTES + int.from_bytes(buffer[1:PREFIX_BYTES], "big")
            if buffer[0] or end > MAX_MESSAGE_BYTES:
                raise ProtocolError("an answer is compressed, or too large", where=self.location)
            if len(buffer) < end:
                return
            message = bytes(memoryview(buffer)[PREFIX_BYTES:end])
            del buffer[:end]
            yield message

    def _check(self, headers: dict[str, str]) -> None:
        """Raise the error that headers or trailers describe, if they do."""
        if headers.get(":status", "200") != "200":
            raise ProtocolError("this is not a Flight server", where=self.location)
        status = headers.get("grpc-status", "0")
        if status != str(Status.OK.value):
            raise _refusal(int(status) if status.isdecimal() else -1, headers, self.location)

    def _lost(self) -> TransportClosed:
        self.close()
        return TransportClosed("the server went away", where=self.location, hint="Connect again")


def _check_greeting(data: bytes) -> None:
    """Raise h2's error unless the first bytes of a server are the header of a SETTINGS frame (RFC 9113, 3.4 and 4.1).

    h2 would wait for the rest of what it takes for a large frame.
    """
    if data[3:4] not in (b"", SETTINGS_FRAME):
        raise Http2Error


def _refusal(status: int, headers: dict[str, str], location: str) -> FastFlightError:
    """Return the error for a status other than OK.

    `grpc-status-details-bin` has the description by a fastflight server. If it is missing, Arrow's own trailers have
    the text of the error and the name of its class.
    """
    of_server = described(_binary(headers, "grpc-status-details-bin"))
    if of_server is not None:
        return of_server
    text = _binary(headers, "x-arrow-status-message-bin").decode(errors="replace")
    text = text or unquote(headers.get("grpc-message", ""), errors="replace")
    raised = RAISED_BY_SERVER.search(_binary(headers, "x-arrow-status-detail-bin").decode(errors="replace"))
    match status:
        case Status.CANCELLED:
            return TransportClosed("the call was cancelled", where=location)
        case Status.DEADLINE_EXCEEDED:
            return TransportTimeout("the server did not answer in time", where=location, hint="Allow a longer timeout")
        case Status.INVALID_ARGUMENT | Status.NOT_FOUND:
            default = RequestError if status == Status.INVALID_ARGUMENT else UnknownName
            return parsed(CLASS_OF_NAME.get(raised[1], default) if raised else default, text)
        case Status.PERMISSION_DENIED:
            return Forbidden(text, where=location)
        case Status.UNIMPLEMENTED:
            return RequestError("the server does not support this call", where=location, hint=text)
        case Status.UNAVAILABLE:
            return TransportClosed("the server went away", where=location, hint="Connect again")
        case Status.UNAUTHENTICATED:
            return Unauthenticated(text, where=location)
    return FastFlightError(text, where=location)


def _binary(headers: dict[str, str], name: str) -> bytes:
    """Return a binary header, which gRPC sends as base64 without padding; empty if it is missing or malformed."""
    text = headers.get(name, "")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error):
        return b""
