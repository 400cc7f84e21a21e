"""Numbers the traffic of a device after its recording.

A chunk of traffic has the same number live and in the recording. If a device was recorded before, its tap starts at a
number after the recording: the next multiple of a million that no server can have reached since. So numbers that an
earlier server used without storing their rows are not used again. The numbers that this skips are not reported as
losses.
"""

from __future__ import annotations

import time

from fastflight.device import Device
from fastflight.log import LogStatistics
from fastflight.sources.recording import Readable

# A server uses numbers whose rows are not stored when it is killed, when the disk fails, or when it does not record.
# NUMBERS_PER_SECOND is more than ten times what any line can use in a second, as one read takes at least 10 us.
# SPARE_NUMBERS is the least distance, in case the clock was set back.
NUMBERS_PER_SECOND = 1_000_000
SPARE_NUMBERS = 65_536


def number_after(recorded: Readable, device: Device) -> None:
    """Number the traffic of a device from now on. Call it before the first byte crosses its line."""
    first = first_number(recorded.statistics(), time.time())
    device.tap.begin_at(max(first, device.tap.next_seq))


def first_number(recorded: LogStatistics, now: float) -> int:
    """Return the first number for traffic from `now` on (seconds since 1970), after what is `recorded`."""
    if not recorded.next_seq:
        return 0
    microseconds = int(now * NUMBERS_PER_SECOND)
    if recorded.last_time is None:  # all rows have been deleted by retention
        reached = max(recorded.next_seq + SPARE_NUMBERS, microseconds)
    else:
        reached = recorded.next_seq + max(SPARE_NUMBERS, microseconds - recorded.last_time)
    return -(-reached // NUMBERS_PER_SECOND) * NUMBERS_PER_SECOND
