"""Suite `relay`: TCP streams through the gateway's WebSocket, beside a relay on `websockets` and beside no relay.

A device that only moves bytes sends content in chunks, and a client reads all of it: directly (`raw`), through the
gateway's relay, and through one on the `websockets` library. All are processes of their own. Received content is
compared byte by byte, after the measured time.
"""

from __future__ import annotations

import importlib.metadata
import itertools
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from fastflight_benchmark.engine import LESS, MIB, MORE, Bench, Figures, Measure, Suite
from fastflight_benchmark.loading.wire import WebSocketWire, Wire
from fastflight_benchmark.peers.null_device import RANDOM
from fastflight_benchmark.peers.relays import LIBRARY, OURS
from fastflight_benchmark.processes import Spawned, spawned
from fastflight_benchmark.result import Label

NULL_DEVICE = "fastflight_benchmark.peers.null_device"
RELAYS = "fastflight_benchmark.peers.relays"
RAW = "raw"
KIB = 1024


@dataclass(frozen=True, slots=True)
class Scope:
    """Sizes in MiB, chunks of the device and reads of the relay in KiB, and rounds in a run."""

    sizes: tuple[int, ...]
    chunks: tuple[int, ...]
    reads: tuple[int, ...]
    rounds: int


FULL = Scope((10, 50, 100), (16, 64), (16, 32, 64, 128, 256), 3)
QUICK = Scope((10,), (64,), (16, 128), 1)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of `size` bytes from the device, in the device's chunks and the reader's reads."""

    device: str
    size: int
    chunk: int
    read: int

    def directly(self) -> Figures:
        """Read it without a relay."""
        with Wire.to(self.device, most=self.read) as wire:
            return self._figures(wire.download(RANDOM, self.size, self.chunk))

    def through(self, relay: Spawned, address: str, kind: str) -> Figures:
        """Read it through a relay."""
        host, _, port = self.device.rpartition(":")
        is_ours = kind == OURS
        path, first = (f"/ws/tcp?host={host}&port={port}", "") if is_ours else ("/", self.device)
        with WebSocketWire.through(address, path, first=first) as wire:
            before = relay.cpu_seconds()
            seconds = wire.download(RANDOM, self.size, self.chunk)
            used = relay.cpu_seconds() - before
        return {**self._figures(seconds), "CPU": used / (self.size / MIB / 1024)}

    def _figures(self, seconds: float) -> Figures:
        return {"throughput": self.size / MIB / seconds}


def run(bench: Bench) -> None:
    """Measure every size with every chunk and read."""
    scope = bench.scope(FULL, QUICK)
    bench.facts["versions"] = {"websockets": importlib.metadata.version("websockets")}
    with ExitStack() as stack:
        device = stack.enter_context(spawned(NULL_DEVICE, "--socket")).location
        relays = {
            kind: stack.enter_context(spawned(RELAYS, kind, *(str(read * KIB) for read in scope.reads)))
            for kind in (OURS, LIBRARY)
        }
        for number in bench.rounds():
            for size, chunk, (place, read) in itertools.product(scope.sizes, scope.chunks, enumerate(scope.reads)):
                cell: dict[str, Label] = {"MiB": size, "chunk_KiB": chunk, "read_KiB": read}
                stream = Stream(device, size * MIB, chunk * KIB, read * KIB)
                through = {
                    kind: partial(stream.through, relay, relay.location.split(",")[place], kind)
                    for kind, relay in relays.items()
                }
                rounds = bench.rounds(scope.rounds, number)
                bench.measure(cell, {RAW: stream.directly, **through}, rounds, warm_up=True)


SUITE = Suite(
    name="relay",
    title="TCP streams through a WebSocket; CPU: the relay's",
    measures={"throughput": Measure("MiB/s", MORE), "CPU": Measure("s/GiB", LESS)},
    ours=(OURS,),
    references=(LIBRARY, RAW),
    run=run,
)
