"""Records to a local folder and reads recordings from it, without a server."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer

from fastflight.app.device_address import device_address
from fastflight.cli import screen
from fastflight.cli.exit_codes import Interrupted, usage_errors
from fastflight.cli.interruption import LOOK_SECONDS
from fastflight.cli.log import log_to_stderr
from fastflight.client import Missed
from fastflight.concurrency import Shards
from fastflight.device import Device, Inventory
from fastflight.errors import StorageError, TransportError
from fastflight.log import StoreReader
from fastflight.runtime.outgoing import close
from fastflight.service.choices import DEVICE_NAME
from fastflight.service.resolve import plain
from fastflight.service.source import Lot, Noted, Reading
from fastflight.sources import Recordings
from fastflight.sources.recording import RecordingSource
from fastflight.sources.recordings import RecordingStatus, status_of
from fastflight.transport.url import public_url

# While a line opens, its state is looked at this often.
OPENING_LOOK_SECONDS = 0.02
# With `--seconds`: how long the first byte may take at least. Boards boot in less, and some print once in ten seconds.
FIRST_BYTE_SECONDS = 30.0
# The name of a recording if none can be made of the URL.
DEFAULT_NAME = "device"


def _reader_of(folder: Path) -> StoreReader:
    """Open the recordings in a folder. Raises `StorageError` if the folder does not exist."""
    if not folder.is_dir():
        raise StorageError("no such folder", where=str(folder), hint="Recordings are made by `fastflight record`")
    return StoreReader(folder)


def recording_source(folder: Path) -> RecordingSource:
    """Return a source that answers `recording` requests from a folder."""
    return RecordingSource(_reader_of(folder))


def statuses(folder: Path) -> list[RecordingStatus]:
    """Return the states of the recordings in a folder."""
    reader = _reader_of(folder)
    return [status_of(name, reader.log(name).statistics()) for name in reader.names()]


class LocalRows:
    """The rows of `reading` behind the interface of a client's stream: a `SessionStream` of `tail`."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.schema: pa.Schema = plain(reading.schema)
        self.gaps: list[Missed] = []
        self.recording = ""

    @property
    def missed(self) -> tuple[int, int]:
        return len(self.gaps), sum(gap.last - gap.first + 1 for gap in self.gaps)

    @property
    def summary(self) -> Mapping[str, Any]:
        return self._reading.summary()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for lot in self._reading.all_lots():
                yield from self._rows(lot)
        finally:
            close(self._reading.lots)

    def _rows(self, lot: Lot) -> Iterator[pa.RecordBatch]:
        for item in lot:
            if isinstance(item, Noted) and "gap" in item.note:
                self.gaps.append(Missed(**item.note["gap"]))
            batch = item.batch if isinstance(item, Noted) else item
            if batch.num_rows:
                yield batch.cast(self.schema)


def name_of(url: str) -> str:
    """Make a name for the recording of a device from the end of its URL: `ttyACM0`, or `127.0.0.1-2218`."""
    rest = url.partition("?")[0].rpartition("://")[2].rstrip("/")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", rest.rpartition("/")[2]).strip("-.")
    return name if DEVICE_NAME.fullmatch(name) else DEFAULT_NAME


def record_here(url: str, name: str, folder: Path, seconds: float | None) -> RecordingStatus:
    """Record a device to a folder, until `seconds` after its first byte or until interrupted. Return the state of the
    recording. With `seconds`, a device that sends nothing is left after `FIRST_BYTE_SECONDS`.

    Raises `Interrupted` after Ctrl-C. In each case everything that was received is stored.
    """
    if not DEVICE_NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r} cannot name a recording: use letters, digits, _ . -")
    with usage_errors():
        device_address(url)
    log_to_stderr(as_json=False)
    interrupted = False
    first = math.inf if seconds is None else time.monotonic() + max(seconds, FIRST_BYTE_SECONDS)
    with ExitStack() as parts:
        shards = Shards()
        inventory = parts.enter_context(Inventory({name: url}, shards=shards, parse=device_address))
        recordings = Recordings(folder, inventory, holder=f"fastflight record {public_url(url)}")
        parts.callback(recordings.close)
        parts.enter_context(shards)
        recordings.start(name)
        try:
            device = inventory.device(name)
            if _is_open_before(first, device):
                screen.complain(f"recording {public_url(url)} as {name} to {folder}")
                if _wait(first, lambda: device.tap.heard_ns is not None):
                    _wait(math.inf if seconds is None else time.monotonic() + seconds, bool)
            if device.tap.heard_ns is None:
                screen.complain(f"{name} sent nothing")
        except KeyboardInterrupt:
            interrupted = True
        status = recordings.stop(name)
    if interrupted:
        raise Interrupted(summary(status, folder))
    return status


def summary(status: RecordingStatus, folder: Path) -> str:
    """Describe in one line what a recording holds."""
    lost = f", {status.lost:,} pieces of traffic lost" if status.lost else ""
    show = f"fastflight replay {status.name} --recordings {shlex.quote(str(folder))}"
    return f"{status.name}: {status.rows:,} rows are kept in {folder}{lost}. To show them: {show}"


def _wait(end: float, over: Callable[[], bool]) -> bool:
    """Wait until `over()`, and return True; False if that is not so at the time `end`."""
    while not over():
        if (left := end - time.monotonic()) <= 0:
            return False
        time.sleep(min(LOOK_SECONDS, left))
    return True


def _is_open_before(end: float, device: Device) -> bool:
    """Wait until the line is open, and return True; False if it is still closed at the time `end`.

    Raises `TransportError` at the first failure, though the device would try again.
    """
    while not device.is_open:
        if device.trouble:
            raise TransportError(device.trouble, where=device.name, hint="Is it plugged in, and not in use?")
        if time.monotonic() >= end:
            return False
        time.sleep(OPENING_LOOK_SECONDS)
    return True
