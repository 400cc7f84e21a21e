"""The message that stores rows of one log in JetStream: a fixed header, and the rows as in the embedded log.

A message is valid only if its checksum is right, and it names its log. So a reader finds out if a message has changed,
or is under another subject. The numbers of a log's messages follow each other: `begin` of a message is `next` of the
one before it. So a reader finds out if a message is absent. The numbers from `begin` to `first` have no rows: those
below `pause_end` were not recorded, the others were lost.

The header also has sums over the log's earlier messages (`Totals`). With them, statistics need only the first and the
last message of a log, and its rows of some time are found by binary search.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from fastflight.log.index import BEGINNING

_HEADER = struct.Struct("<4sQQQQQQIqqqQQQQ")
_CRC = struct.Struct("<I")
MAGIC = b"ffr1"
HEADER_BYTES = _HEADER.size + _CRC.size


class Totals(NamedTuple):
    """Sums over the messages of a log, up to some message. `latest` is the latest time of their rows.

    `back` is how far the times of any of them stepped back behind an earlier row, in microseconds. All rows after a
    message with the latest time t have times from t - `back` on, where `back` is that of the log's last message.
    """

    rows: int = 0
    bytes: int = 0
    lost: int = 0
    latest: int = BEGINNING
    back: int = 0


class Record(NamedTuple):
    """One message of a log.

    `previous` is the stream sequence of the log's message before it, 0 if there was none. `token` is the fencing token
    of the lease that its writer held. `before` has the totals of the messages before it.
    """

    log: int
    previous: int
    token: int
    begin: int
    pause_end: int
    first: int
    rows: int
    first_time: int
    last_time: int
    before: Totals
    body: bytes | memoryview

    @property
    def next(self) -> int:
        """The number after its last row."""
        return self.first + self.rows

    @property
    def totals(self) -> Totals:
        """The totals up to this message, including it."""
        before = self.before
        return Totals(
            before.rows + self.rows,
            before.bytes + len(self.body),
            before.lost + self.first - self.pause_end,
            max(before.latest, self.last_time),
            max(before.back, before.latest - self.first_time if before.rows else 0),
        )


def encode_record(record: Record) -> bytes:
    """Return the message of `record`."""
    header = _HEADER.pack(MAGIC, *record[:9], record.before.latest, *_sums(record.before))
    return b"".join((header, _CRC.pack(crc32(record.body, crc32(header))), record.body))


def decode_record(message: bytes, log: int) -> Record | None:
    """Return the record in `message`; None if it is damaged, or is not of the log with this number."""
    if len(message) < HEADER_BYTES or not message.startswith(MAGIC):
        return None
    body = memoryview(message)[HEADER_BYTES:]
    (checksum,) = _CRC.unpack_from(message, _HEADER.size)
    if crc32(body, crc32(message[: _HEADER.size])) != checksum:
        return None
    _, *numbers, first_time, last_time, latest, kept, size, lost, back = _HEADER.unpack_from(message)
    number, previous, token, begin, pause_end, first, rows = numbers
    before = Totals(kept, size, lost, latest, back)
    record = Record(number, previous, token, begin, pause_end, first, rows, first_time, last_time, before, body)
    return record if record.log == log else None


def _sums(totals: Totals) -> tuple[int, int, int, int]:
    return totals.rows, totals.bytes, totals.lost, totals.back
