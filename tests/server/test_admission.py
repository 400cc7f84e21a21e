"""Limits on streams, as a client meets them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.client.failure import typed
from fastflight.errors import ResourceExhausted
from fastflight.runtime.admission import Limits
from fastflight.service import DataSource
from fastflight.service.source import Estimate, Reading
from tests.support.function_source import FunctionSource
from tests.support.refusals import refused
from tests.support.waiting import until

from .conftest import SCHEMA, SOON, Trial, TrialServer, ticket, trial_server

IDLE = {"type": "trial", "rows": 1, "idle": True}


def opened(running: TrialServer, **keys: object) -> flight.FlightStreamReader:
    """A stream that is open, and idle after its first batch."""
    reader = running.client.do_get(ticket(**{**IDLE, **keys}))
    assert reader.read_chunk().data.num_rows == 1
    return reader


def waiting(running: TrialServer, number: int) -> Callable[[], bool]:
    return lambda: running.stats()["waiting"] == number


class Asking(threading.Thread):
    """A client in a thread of its own, and what it was told."""

    def __init__(self, running: TrialServer, **keys: object) -> None:
        super().__init__(daemon=True)
        self.client = flight.connect(f"grpc://127.0.0.1:{running.server.port}")
        self.keys = keys
        self.rows = -1
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            with self.client:
                self.rows = self.client.do_get(ticket(type="trial", **self.keys)).read_all().num_rows
        except pa.ArrowException as error:
            self.error = error


def test_who_finds_no_room_waits_and_is_admitted_when_one_ends(mode: str) -> None:
    with trial_server(Limits(streams=1, wait_seconds=SOON)) as running:
        first = opened(running, mode=mode)
        second = Asking(running, mode=mode)
        until(waiting(running, 1))
        assert second.rows == -1
        threads = running.stats()["threads"]
        assert threads["handlers"] == 2
        assert threads["all"] == sum(count for kind, count in threads.items() if kind != "all")
        first.cancel()
        second.join(SOON)
        assert (second.rows, second.error) == (3, None)
        assert running.settled()
        assert running.stats()["started"] == 2


def test_who_waits_in_vain_is_told_what_is_full_and_when_to_come_back() -> None:
    with trial_server(Limits(streams=1, wait_seconds=0)) as running:
        first = opened(running)
        with pytest.raises(flight.FlightUnavailableError) as raised:
            running.client.do_get(ticket(type="trial")).read_all()
        assert json.loads(raised.value.extra_info) == {
            "code": "resource_exhausted",
            "what": "1 stream is open, as many as the server takes",
            "hint": "End one that is no longer needed, or try again in 1 s",
            "scope": "server",
            "limit": 1,
            "retry_after_seconds": 1.0,
        }
        error = typed(raised.value, "")
        assert isinstance(error, ResourceExhausted)
        assert (error.scope, error.limit, error.retry_after_seconds) == ("server", 1, 1.0)
        first.cancel()
        assert running.settled()
        assert (running.stats()["started"], running.stats()["refused"]) == (1, 1)


@pytest.mark.parametrize("limits", [Limits(per_device=2, wait_seconds=0), Limits(per_identity=2, wait_seconds=0)])
def test_a_device_and_a_client_have_limits_of_their_own(limits: Limits) -> None:
    with trial_server(limits) as running:
        readers = [opened(running, device="demo") for _ in range(2)]
        scope = "device" if limits.per_identity is None else "identity"
        with refused(flight.FlightUnavailableError, code="resource_exhausted", scope=scope, limit=2):
            opened(running, device="demo")
        if limits.per_identity is None:
            readers.append(opened(running, device="other"))
        for reader in readers:
            reader.cancel()
        assert running.settled()


def test_uploads_and_exchanges_have_the_same_room() -> None:
    schema = pa.schema([("n", pa.int64())])
    with trial_server(Limits(streams=1, wait_seconds=0)) as running:
        first = opened(running)
        command = flight.FlightDescriptor.for_command(b'{"type": "trial"}')
        writer, _ = running.client.do_put(command, schema)
        with refused(flight.FlightUnavailableError, scope="server", limit=1):
            writer.close()
        writer, reader = running.client.do_exchange(command)
        with refused(flight.FlightUnavailableError, scope="server", limit=1):
            reader.read_chunk()
        with pytest.raises(flight.FlightUnavailableError):
            writer.close()
        first.cancel()
        assert running.settled()


def test_a_client_that_leaves_while_it_waits_frees_its_place_in_the_queue() -> None:
    with trial_server(Limits(streams=1, waiting=1, wait_seconds=SOON)) as running:
        first = opened(running)
        # A call that its client gives up; it has no stream to cancel yet.
        brief = flight.FlightCallOptions(timeout=0.3)
        with pytest.raises(flight.FlightTimedOutError):
            running.client.do_get(ticket(type="trial"), brief).read_all()
        until(waiting(running, 0))
        second = Asking(running)
        until(waiting(running, 1))
        first.cancel()
        second.join(SOON)
        assert second.rows == 3


class SlowSource:
    """A source that is long in describing itself, as a device is that does not answer."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def source(self) -> DataSource[Trial]:
        return FunctionSource(Trial, read=lambda request: Reading(SCHEMA, iter([])), describe=self.describe)

    def describe(self, request: Trial) -> Estimate:
        self.asked.set()
        assert self.go.wait(SOON)
        return Estimate(SCHEMA)


def described(running: TrialServer, device: str | None = None) -> threading.Thread:
    """Ask for a flight's description in a thread."""
    command = flight.FlightDescriptor.for_command(
        json.dumps({"type": "trial", **({"device": device} if device else {})})
    )
    thread = threading.Thread(target=running.client.get_flight_info, args=(command,), daemon=True)
    thread.start()
    return thread


def test_calls_that_are_no_streams_have_a_limit_of_their_own() -> None:
    slow = SlowSource()
    with trial_server(Limits(calls=1, wait_seconds=0), trial=slow.source()) as running:
        asking = described(running)
        assert slow.asked.wait(SOON)
        command = flight.FlightDescriptor.for_command(b'{"type": "trial"}')
        calls: list[Callable[[], object]] = [
            lambda: list(running.client.do_action(flight.Action("greet", b'{"name": "you"}'))),
            lambda: list(running.client.list_flights()),
            lambda: running.client.get_flight_info(command),
        ]
        for call in calls:
            with refused(flight.FlightUnavailableError, scope="calls", limit=1):
                call()
        stats = running.stats()
        assert (stats["calls"], stats["refused"], stats["threads"]["handlers"]) == (1, 3, 1)
        # Streams go on, and so does what is said at once.
        assert running.client.do_get(ticket(type="trial", mode="sync")).read_all().num_rows == 0
        assert list(running.client.do_action(flight.Action("health", b"")))
        slow.go.set()
        asking.join(SOON)
        assert list(running.client.do_action(flight.Action("greet", b'{"name": "you"}')))
        assert running.stats()["calls"] == 0


def test_calls_on_a_device_count_with_its_streams() -> None:
    slow = SlowSource()
    with trial_server(Limits(per_device=1, wait_seconds=0), trial=slow.source()) as running:
        asking = described(running, "demo")
        assert slow.asked.wait(SOON)
        with refused(flight.FlightUnavailableError, scope="device", limit=1, where="demo"):
            running.client.do_get(ticket(type="trial", mode="sync", device="demo")).read_all()
        assert running.client.do_get(ticket(type="trial", mode="sync", device="other")).read_all().num_rows == 0
        slow.go.set()
        asking.join(SOON)
        assert running.client.do_get(ticket(type="trial", mode="sync", device="demo")).read_all().num_rows == 0


def test_a_call_that_is_not_read_to_its_end_gives_its_place_back() -> None:
    with trial_server(Limits(calls=1, wait_seconds=0)) as running:
        results = running.client.do_action(flight.Action("greet", b'{"name": "you"}'))
        del results
        until(lambda: running.stats()["calls"] == 0)
        assert list(running.client.do_action(flight.Action("greet", b'{"name": "you"}')))


def test_a_call_whose_results_nobody_reads_holds_no_place_and_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.server.flight.STOP_SECONDS", 0.1)
    # A client that takes a byte at a time, and does not look how much the line could carry.
    thin = [("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0)]
    long = json.dumps({"name": "you" * 30_000}).encode()
    with trial_server(Limits(calls=1)) as running:
        with flight.FlightClient(f"grpc://127.0.0.1:{running.server.port}", generic_options=thin) as client:
            unread = [client.do_action(flight.Action("greet", long)) for _ in range(2)]
            assert list(running.client.do_action(flight.Action("greet", b'{"name": "you"}')))
            assert running.server.close(0)  # with both of them still there
            for results in unread:
                with pytest.raises(pa.ArrowException):
                    list(results)
