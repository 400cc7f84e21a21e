"""Content for the tests of this folder."""

from __future__ import annotations

import random

# Each byte 40 times, in an order that does not compress: faults come after a number of bytes on the line.
CONTENT = b"".join(bytes(random.Random(number).sample(range(256), 256)) for number in range(40))
