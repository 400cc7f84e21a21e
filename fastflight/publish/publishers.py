"""The publishers of a server, by device. They share one event loop in a thread of its own.

So an output that is slow to resolve or to connect cannot delay the reading of devices.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client.metrics_core import Metric

from fastflight.concurrency import Shard
from fastflight.device import Device
from fastflight.errors import FastFlightError
from fastflight.publish.address import OutputAddress
from fastflight.publish.output import open_output
from fastflight.publish.publisher import PUBLISHING, PositionFile, Publisher
from fastflight.publish.rows import RowFormat
from fastflight.runtime.metrics import device_labels, family
from fastflight.sources.recording import Readable

# How long the publishers of a removed device may take to publish what was read.
STOP_SECONDS = 2.0
# The folder of positions, in that of the recordings.
FOLDER = "published"


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """Where the rows of one device are published, and how its lines become rows."""

    outputs: tuple[OutputAddress, ...]
    rows: RowFormat


class Publishers:
    """Starts and stops publishers. Any thread may call it.

    `recording` returns the recording of a device, or raises. `folder` is that of the recordings, if there is one.
    """

    def __init__(self, recording: Callable[[str], Readable], folder: Path | None) -> None:
        self._recording = recording
        self._folder = folder
        self._lock = threading.Lock()
        self._shard: Shard | None = None
        # A change replaces the dict, so that metrics can be collected meanwhile.
        self._running: dict[str, list[tuple[Publisher, concurrent.futures.Future[None]]]] = {}

    def start(self, device: Device, settings: PublishSettings) -> None:
        """Publish the rows of a device from now on, or from where this ended earlier."""
        with self._lock:
            if self._shard is None:
                self._shard = Shard("publish").start()
            started = []
            for address in settings.outputs:
                output = open_output(device.name, address, settings.rows)
                recording = partial(self._recording, device.name)
                positions = PositionFile(self._path(device.name, address))
                publisher = Publisher(device, address.label, output, settings.rows, recording, positions)
                started.append((publisher, self._shard.submit(publisher.run())))
            self._running = {**self._running, device.name: started}

    def stop(self, name: str, seconds: float = STOP_SECONDS) -> None:
        """End the publishers of a device. Does nothing if it has none."""
        with self._lock:
            ended = self._running.get(name, [])
            self._running = {each: others for each, others in self._running.items() if each != name}
        self._end(ended, seconds)

    def drain(self) -> list[concurrent.futures.Future[None]]:
        """Tell all publishers to end, and return a future for each."""
        ended = [each for publishers in self._running.values() for each in publishers]
        for publisher, _ in ended:
            publisher.end()
        return [future for _, future in ended]

    def close(self) -> None:
        """End all publishers at once."""
        for name in list(self._running):
            self.stop(name, 0.0)
        if self._shard is not None:
            self._shard.close()

    def states(self, name: str) -> list[dict[str, object]]:
        """Return the output, state and counts of each publisher of a device."""
        return [
            {
                "output": each.label,
                "state": each.state,
                "sent": each.sent,
                "waiting": each.traffic.waiting,
                "refused": each.refused,
                "misfits": each.misfits,
                "lost": each.traffic.lost,
            }
            for each, _ in self._running.get(name, [])
        ]

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of all publishers."""
        labels = device_labels(self._running)
        found = [((labels[name], each.label), each) for name, all_ in self._running.items() for each, _ in all_]
        counts = [
            ((*of, outcome), count)
            for of, each in found
            for outcome, count in (("sent", each.sent), ("refused", each.refused), ("misfit", each.misfits))
        ]
        yield family("fastflight_publish_failing", ((of, int(each.state != PUBLISHING)) for of, each in found))
        yield family("fastflight_publish_rows_total", counts)
        yield family("fastflight_publish_waiting", ((of, each.traffic.waiting) for of, each in found))
        yield family("fastflight_publish_lost_total", ((of, each.traffic.lost) for of, each in found))

    def _path(self, device: str, address: OutputAddress) -> Path | None:
        digest = hashlib.sha256(f"{device} {address.url}".encode()).hexdigest()[:32]
        return None if self._folder is None else self._folder / FOLDER / f"{digest}.json"

    @staticmethod
    def _end(ended: list[tuple[Publisher, concurrent.futures.Future[None]]], seconds: float) -> None:
        for publisher, _ in ended:
            publisher.end()
        futures = [future for _, future in ended]
        concurrent.futures.wait(futures, seconds)
        for future in futures:
            future.cancel()
            with contextlib.suppress(concurrent.futures.CancelledError, TimeoutError, FastFlightError):
                future.result(0)
