"""A connection to NATS, which is made again whenever it is lost, until it is closed.

Use it on one event loop::

    connection = ClusterConnection(NatsAddress(("nats://127.0.0.1:4222",)), "server alpha")
    connection.open()                                    # returns at once, and connects in the background
    nats = await connection.connected()                  # waits until there is a connection
    with typed_errors("the stream fastflight"):            # turns errors of nats-py into those of fastflight
        await connection.jetstream.publish("rec.demo", b"rows")
    await connection.lost(nats)                          # waits until this connection is gone
    await connection.aclose()

Each connection is a new client of nats-py, which does not connect again by itself: what is published while there is no
connection is an error and not kept to be sent later, and subscriptions end with their connection. So after `connected`
returns another client, subscribe again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nats.errors
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js import errors as js_errors

from fastflight.errors import (
    FastFlightError,
    Forbidden,
    RequestError,
    StorageError,
    StorageFull,
    TransportError,
    TransportTimeout,
    Unauthenticated,
)

log = structlog.get_logger(__name__)

# To connect, with TLS and authentication, and to learn whether JetStream is there.
CONNECT_SECONDS = 5.0
# To close a connection.
CLOSE_SECONDS = 1.0
# Between two attempts to connect.
RETRY_SECONDS = 0.5
# How often is looked whether a client has closed without a word.
CLOSED_SECONDS = 0.5
# A NATS server that hangs is left after three times this time, so that leases can be renewed at another one.
PING_SECONDS = 1.0
MAX_PINGS = 2
# How long JetStream may take to acknowledge. A new leader of a stream takes about five seconds.
ANSWER_SECONDS = 5.0
# The first version in which `sync_interval: always` and the limits of streams behave as fastflight needs it.
MIN_VERSION = (2, 11)
# Error codes of JetStream: no room in the account or the server; the stream is full (`discard: new`).
FULL_CODES = frozenset((10002, 10023, 10028, 10047, 10077))
# As many copies as there are NATS servers in the address, at most this many: a quorum of three bears the loss of one.
MAX_REPLICAS = 3
# The error code of an account without JetStream.
NO_JETSTREAM_CODES = frozenset((10039, 10076))
# Another message of the same subject, or of the stream, is being stored at this moment.
BUSY_CODES = frozenset((10164,))
JETSTREAM_HINT = "Start nats-server with -js, or allow JetStream for the account"
CREDENTIALS_HINT = "Check the credentials in [cluster] of the fleet file, and the users in the NATS configuration"
ADDRESS_HINT = "Check that nats-server runs there"
TLS_HINT = (
    "Check that nats-server uses TLS, and that ca, cert and key in [cluster] belong to its certificate and its ca_file"
)


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """The URLs of the NATS servers of one cluster, and how to authenticate. `credentials` and `nkey` are files.

    `password` goes with `user`; a `token` goes alone. With `tls`, nothing is sent to a server without TLS.
    """

    servers: tuple[str, ...]
    credentials: Path | None = None
    nkey: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return ",".join(self.servers)


class _Client(Client):
    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # nats-py 2.17 sends what is waiting though the connection has been reset, which uvloop refuses. Nobody awaits
        # the task in which that happens: asyncio would write its traceback to the log.
        with contextlib.suppress(RuntimeError):
            await super()._close(status, do_cbs)


class _TlsClient(_Client):
    """Sends nothing to a server that does not ask for TLS. nats-py would send the password, whatever the URL says."""

    def _connect_command(self) -> bytes:
        if not self._server_info.get("tls_required"):
            raise nats.errors.SecureConnRequiredError
        return bytes(super()._connect_command())


class ClusterConnection:
    """A connection to NATS on the event loop on which it was opened. `name` is what NATS lists it as."""

    def __init__(self, address: NatsAddress, name: str) -> None:
        self._address = address
        self._name = name
        self._client: Client | None = None
        self._jetstream: JetStreamContext | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # Why there is no connection; None while there is one.
        self._failure: FastFlightError | None = TransportError("not connected to NATS yet")

    @property
    def trouble(self) -> str:
        """Why there is no connection; empty while there is one."""
        return "" if self._failure is None else str(self._failure)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection. It may be lost at any moment."""
        return self._client is not None and self._client.is_connected

    @property
    def jetstream(self) -> JetStreamContext:
        """JetStream by the present connection. `TransportError` if there is none."""
        if self._jetstream is None or not self.is_connected:
            failure = self._failure or self._unreachable("the connection was lost")
            raise TransportError(failure.what, where=failure.where or str(self._address), hint=failure.hint)
        return self._jetstream

    def open(self) -> None:
        """Begin to connect."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def connected(self) -> Client:
        """Wait until there is a connection, for as long as it takes, and return it."""
        while self._client is None or not self._client.is_connected:
            await self._next_change()
        return self._client

    async def lost(self, client: Client) -> None:
        """Wait until `client`, from `connected`, is not the connection any more."""
        while self._client is client and client.is_connected:
            await self._next_change()

    async def drop(self) -> None:
        """Close the present connection, so that another one is made: to another server, if there are several."""
        if self._client is not None:
            await self._client.close()

    async def aclose(self) -> None:
        """Close the connection. Nothing is sent any more."""
        task, self._task = self._task, None
        while task is not None and not task.done():
            # `asyncio.wait_for` of Python 3.11, which nats-py uses, loses a cancellation if what it waits for ends now.
            task.cancel()
            await asyncio.wait([task], timeout=2 * CLOSE_SECONDS)

    async def _next_change(self) -> None:
        changed = self._changed
        await changed.wait()

    def _notify(self) -> None:
        """Wake up everybody that waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self) -> None:
        while True:
            try:
                client, closed = await self._connect()
            except Exception as error:  # nobody awaits this task, and nats-py raises anything for a file it cannot read
                failure = error if isinstance(error, FastFlightError) else self._unreachable(type(error).__name__)
                if str(failure) != self.trouble:
                    log.warning("NATS cannot be used; trying again", connection=self._name, reason=str(failure))
                self._failure = failure
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._client, self._jetstream = client, client.jetstream(timeout=ANSWER_SECONDS)
            self._failure = None
            log.info(
                "connected to NATS",
                connection=self._name,
                server=client.connected_url.netloc if client.connected_url else "",
            )
            self._notify()
            try:
                await _until_closed(client, closed)
            finally:
                self._client = self._jetstream = None
                self._notify()
                await self._close(client)
            self._failure = self._unreachable("the connection was lost")
            log.warning("the connection to NATS was lost; connecting again", connection=self._name)

    async def _connect(self) -> tuple[Client, asyncio.Event]:
        """Connect once, and check the server. Return the client, and an event that is set when it has closed."""
        client, closed = _Client() if self._address.tls is None else _TlsClient(), asyncio.Event()
        address, failures = self._address, list[Exception]()

        async def note_failure(error: Exception) -> None:
            failures.append(error)

        async def note_end() -> None:
            closed.set()

        try:
            with typed_errors(f"NATS at {address}", ADDRESS_HINT if address.tls is None else TLS_HINT):
                try:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        await client.connect(
                            list(address.servers),
                            name=self._name,
                            error_cb=note_failure,
                            closed_cb=note_end,
                            allow_reconnect=False,
                            # Each server is tried twice, which bounds the attempt.
                            max_reconnect_attempts=1,
                            reconnect_time_wait=0.1,  # type: ignore[arg-type]
                            connect_timeout=2,
                            ping_interval=PING_SECONDS,  # type: ignore[arg-type]
                            max_outstanding_pings=MAX_PINGS,
                            user=address.user,
                            password=address.password,
                            token=address.token,
                            user_credentials=None if address.credentials is None else str(address.credentials),
                            nkeys_seed=None if address.nkey is None else str(address.nkey),
                            tls=address.tls,
                        )
                        self._check_version(client)
                        await client.jetstream(timeout=ANSWER_SECONDS).account_info()
                except (nats.errors.NoServersError, TimeoutError) as error:
                    # What the last attempt failed with says more.
                    raise (failures[-1] if failures else error) from error
        except BaseException:
            await self._close(client)
            raise
        failures.clear()
        return client, closed

    async def _close(self, client: Client) -> None:
        """Close it, without waiting for a peer that does not answer: after TLS has failed, none does."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close()

    def _check_version(self, client: Client) -> None:
        version = client.connected_server_version
        if (version.major, version.minor) < MIN_VERSION:
            needed = ".".join(map(str, MIN_VERSION))
            raise RequestError(
                f"NATS there has version {version.major}.{version.minor}, and fastflight needs {needed}",
                where=str(self._address),
                hint="Update nats-server on all nodes",
            )

    def _unreachable(self, reason: str) -> TransportError:
        return TransportError(f"NATS cannot be used ({reason})", where=str(self._address), hint=ADDRESS_HINT)


async def _until_closed(client: Client, closed: asyncio.Event) -> None:
    """Wait until the client is closed, which sets `closed` unless closing it failed."""
    while not client.is_closed:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closed.wait(), CLOSED_SECONDS)


def replicas_for(servers: int) -> int:
    """Return how many copies of each message there should be, with so many NATS servers in the address."""
    return MAX_REPLICAS if servers >= MAX_REPLICAS else 1


async def raise_replicas(jetstream: JetStreamContext, config: api.StreamConfig, replicas: int) -> None:
    """Have NATS keep `replicas` copies of a stream that was made with fewer. If it refuses, that is logged."""
    if (config.num_replicas or 1) >= replicas:
        return
    try:
        await jetstream.update_stream(config.evolve(num_replicas=replicas))
    except (nats.errors.Error, TimeoutError) as error:
        log.warning(
            "NATS keeps fewer copies than there should be",
            stream=config.name,
            copies=config.num_replicas or 1,
            wanted=replicas,
            reason=error.description if isinstance(error, js_errors.APIError) else type(error).__name__,
            hint="It is tried again at the next connection. `fastflight cluster status` shows the copies",
        )
    else:
        log.info("NATS makes more copies", stream=config.name, copies=replicas)


@contextlib.contextmanager
def typed_errors(where: str, hint: str = ADDRESS_HINT) -> Iterator[None]:
    """Raise the errors of nats-py in the block as those of fastflight. A refused revision is left as it is.

    `hint` is that of an error of the connection. `KeyWrongLastSequenceError` is an answer, and no failure.
    """
    try:
        yield
    except js_errors.KeyWrongLastSequenceError:
        raise
    except js_errors.APIError as error:
        raise _of_jetstream(error, where) from error
    except nats.errors.AuthorizationError as error:
        raise Unauthenticated("NATS refuses the credentials", where=where, hint=CREDENTIALS_HINT) from error
    except (nats.errors.TimeoutError, TimeoutError) as error:
        raise TransportTimeout("NATS does not answer in time", where=where, hint=hint) from error
    except ssl.SSLError as error:
        raise TransportError(f"TLS failed ({error.reason or error})", where=where, hint=TLS_HINT) from error
    except (nats.errors.Error, OSError) as error:
        reason = str(error).removeprefix("nats: ").strip("'") or type(error).__name__
        if "permissions violation" in reason.lower():
            raise Forbidden(f"NATS refuses this: {reason}", where=where, hint=CREDENTIALS_HINT) from error
        if "authorization" in reason.lower() or "authentication" in reason.lower():
            raise Unauthenticated("NATS refuses the credentials", where=where, hint=CREDENTIALS_HINT) from error
        raise TransportError(f"NATS cannot be used ({reason})", where=where, hint=hint) from error


def _of_jetstream(error: js_errors.APIError, where: str) -> FastFlightError:
    reason = error.description or f"error {error.code}"
    if error.err_code in FULL_CODES:
        return StorageFull(f"JetStream has no room: {reason}", where=where, hint="Raise its limits, or keep less")
    # Without a code of its own: NATS itself says that nobody answers there.
    unanswered = isinstance(error, js_errors.ServiceUnavailableError) and error.err_code is None
    if unanswered or error.err_code in NO_JETSTREAM_CODES:
        return RequestError("JetStream is off", where=where, hint=JETSTREAM_HINT)
    if error.err_code in BUSY_CODES:
        return TransportError(f"JetStream stores another message just now: {reason}", where=where, hint="Try again")
    if isinstance(error, js_errors.ServiceUnavailableError):
        what = f"JetStream has no leader at the moment: {reason}"
        return TransportError(what, where=where, hint="More than half of its nodes must run. This is tried again")
    if isinstance(error, js_errors.ServerError):
        return StorageError(f"JetStream failed: {reason}", where=where, hint="See the log of nats-server")
    return RequestError(f"JetStream refuses this: {reason}", where=where, hint="See docs/cluster.md")
