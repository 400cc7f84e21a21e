"""A connection to an MQTT broker on an event loop, with paho-mqtt.

MQTT 5, because only there a broker says in its acknowledgement that it refuses a message. One object is one connection:
after an error, close it and make another one. The outcome of every message is known: it is acknowledged, refused, or
the connection was lost before.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from fastflight.concurrency import off_loop
from fastflight.errors import RequestError, TransportError
from fastflight.publish.address import OutputAddress
from fastflight.publish.output import ANSWER_SECONDS, hint_for, tls_context

# A broker that is cut off is noticed after at most twice this time.
KEEPALIVE_SECONDS = 20
# How often paho looks whether it must send a sign of life.
MISC_SECONDS = 1.0
# Messages that wait for their acknowledgement at a time. A broker may ask for fewer.
WINDOW = 20
# The longest packet of MQTT. A broker may ask for shorter ones.
MAX_PACKET_BYTES = 256 * 1024 * 1024
# Reason codes of MQTT 5: the credentials are wrong, or do not allow this.
DENIED = (0x86, 0x87)


class _Socket(ssl.SSLSocket):
    """Closes itself if the handshake fails, which paho forgets."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


class MqttConnection:
    """Connects in `open`. Use it on one event loop."""

    def __init__(self, address: OutputAddress, will: tuple[str, bytes] | None = None) -> None:
        """`will`: the topic and payload of the retained message that the broker publishes if the connection is lost."""
        self._address = address
        self._loop = asyncio.get_running_loop()
        # How many messages the broker takes at once, and how long each may be.
        self.window = WINDOW
        self.max_packet_bytes = MAX_PACKET_BYTES
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._lost = ""
        self._misc: asyncio.TimerHandle | None = None
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5, reconnect_on_failure=False
        )
        if will is not None:
            self._client.will_set(*will, qos=1, retain=True)
        if address.user:
            self._client.username_pw_set(address.user, address.password or None)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = lambda client, data, flags, code, properties: self._lose(str(code))
        self._client.on_publish = self._on_publish

    async def open(self) -> None:
        """Connect. `TransportError` if the broker does not answer, `RequestError` if it refuses."""
        if self._address.encrypted:
            context = tls_context(self._address)
            context.sslsocket_class = _Socket
            self._client.tls_set_context(context)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await off_loop(
                    self._client.connect, self._address.host, self._address.port, KEEPALIVE_SECONDS
                )  # its callbacks for the loop are set below: nothing is read before
                self._attach()
                await self._connected
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            what = f"the broker cannot be reached ({reason})"
            raise TransportError(what, where=self._address.label, hint=hint_for(reason)) from error

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        """Publish, and return the reason code: below 0x80 the broker has it. `TransportError` if that is unknown."""
        self.check()
        info = self._client.publish(topic, payload, qos=1, retain=retain)
        if info.rc != paho.MQTT_ERR_SUCCESS:
            self._lose(paho.error_string(info.rc))
            self.check()
        acknowledged: asyncio.Future[int] = self._loop.create_future()
        self._waiting[info.mid] = acknowledged
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await acknowledged
        except TimeoutError as error:
            raise TransportError("the broker does not acknowledge", where=self._address.label) from error
        finally:
            self._waiting.pop(info.mid, None)

    def check(self) -> None:
        """Raise `TransportError` if the connection is lost."""
        if self._lost:
            what = f"the connection to the broker is lost ({self._lost})"
            raise TransportError(what, where=self._address.label, hint="Is it running?")

    def close(self) -> None:
        """Disconnect. The broker publishes no will then, if it is still there."""
        self._client.disconnect()
        self._detach()
        self._lose("closed")
        # paho has no other way to close a socket at once.
        self._client.reinitialise()
        if self._connected.done() and not self._connected.cancelled():
            self._connected.exception()  # retrieve it, or asyncio would report it

    def _attach(self) -> None:
        socket = self._client.socket()
        if socket is None:
            return
        self._descriptor = socket.fileno()
        self._loop.add_reader(self._descriptor, self._step, self._client.loop_read)
        self._client.on_socket_register_write = lambda client, data, _: self._loop.add_writer(
            self._descriptor, self._step, self._client.loop_write
        )
        self._client.on_socket_unregister_write = self._stop_writing
        self._client.on_socket_close = lambda client, data, _: self._detach()
        if self._client.want_write():
            self._loop.add_writer(self._descriptor, self._step, self._client.loop_write)
        self._tick()

    def _stop_writing(self, client: Any, data: Any, socket: Any) -> None:
        self._loop.remove_writer(self._descriptor)

    def _detach(self) -> None:
        if self._misc is not None:
            self._misc.cancel()
            self._misc = None
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)

    def _tick(self) -> None:
        self._misc = self._loop.call_later(MISC_SECONDS, self._tick)
        self._step(self._client.loop_misc)

    def _step(self, step: Callable[[], Any]) -> None:
        try:
            step()
            socket = self._client.socket()
            while step == self._client.loop_read and isinstance(socket, ssl.SSLSocket) and socket.pending():
                step()
        except (OSError, ValueError) as error:
            self._detach()
            self._lose(str(error))

    def _on_connect(self, client: Any, data: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
        if self._connected.done():
            return
        if not code.is_failure:
            self.window = min(WINDOW, getattr(properties, "ReceiveMaximum", WINDOW))
            self.max_packet_bytes = getattr(properties, "MaximumPacketSize", MAX_PACKET_BYTES)
            self._connected.set_result(None)
            return
        label = self._address.label
        if code.value in DENIED:
            hint = "Check the user, and password_file or password_env"
            self._connected.set_exception(RequestError(f"the broker refuses: {code}", where=label, hint=hint))
        else:
            self._connected.set_exception(TransportError(f"the broker refuses: {code}", where=label))

    def _on_publish(self, client: Any, data: Any, mid: int, code: ReasonCode, properties: Any) -> None:
        acknowledged = self._waiting.get(mid)
        if acknowledged is not None and not acknowledged.done():
            acknowledged.set_result(code.value)

    def _lose(self, reason: str) -> None:
        self._lost = self._lost or reason
        error = TransportError(f"the connection to the broker is lost ({self._lost})", where=self._address.label)
        futures: list[asyncio.Future[Any]] = [self._connected, *self._waiting.values()]
        for future in futures:
            if not future.done():
                future.set_exception(error)
