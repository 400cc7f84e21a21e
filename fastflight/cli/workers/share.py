"""Which worker has which device, and what each worker is told.

A device's name says who has it: the same one in every process, and after every start with as many workers.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from pydantic import TypeAdapter

from fastflight.cli.access_settings import ENCRYPTED, FrontKnown
from fastflight.cli.settings import ServeSettings
from fastflight.concurrency.governor import MIN_MEMORY_BYTES

# Apart from the hash that spreads devices over a process's shards: by the same one, all devices of a worker with as
# many shards would fall to one of these.
PERSON = b"worker"
SETTINGS: TypeAdapter[ServeSettings] = TypeAdapter(ServeSettings)


def owner_of(name: str, workers: int) -> int:
    """The number of the worker that has the device `name`."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, person=PERSON).digest()) % workers


def shares(settings: ServeSettings, front: FrontKnown | None = None) -> list[ServeSettings]:
    """The settings of each worker: a port of its own, its devices and their bridges, its part of the event loops.

    To a worker, all that comes through the front comes from one client: it has no limit for each. Memory is for the
    front and its workers alike. `front` is how they know the front, where clients have to say who they are.
    """
    return [
        replace(
            settings,
            location="grpc://127.0.0.1:0" if settings.access.tls is None else f"{ENCRYPTED}://127.0.0.1:0",
            devices={name: url for name, url in settings.devices.items() if owner_of(name, settings.workers) == number},
            bridges={name: it for name, it in settings.bridges.items() if owner_of(name, settings.workers) == number},
            shards=max(1, settings.shards // settings.workers),
            limits=replace(
                settings.limits,
                per_identity=None,
                memory=memory_of(settings),
            ),
            http=None,
            relay=(),
            origins=(),
            workers=1,
            access=replace(settings.access, front=front),
        )
        for number in range(settings.workers)
    ]


def elsewhere(settings: ServeSettings) -> ServeSettings:
    """The settings of a worker whose port cannot be had any more: with any port."""
    return replace(settings, location=f"{settings.location.rpartition(':')[0]}:0")


def memory_of(settings: ServeSettings) -> int:
    """What may wait in the front, and in each worker."""
    return max(MIN_MEMORY_BYTES, settings.limits.memory // (settings.workers + 1))


def encode(settings: ServeSettings) -> bytes:
    """A worker's settings in one line."""
    return SETTINGS.dump_json(settings)


def decode(line: bytes) -> ServeSettings:
    """The settings in a line that `encode` made."""
    return SETTINGS.validate_json(line)
