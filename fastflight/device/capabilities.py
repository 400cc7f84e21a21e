"""What a board can do, and what it says of itself.

`PROBE` runs on the board once per connection. It tries each feature, because a board's name does not tell which ones
its firmware has. `parse` turns its output into `Capabilities`, from which all other modules choose their way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastflight.device import answers

# Small enough for the 8 KB heap of a micro:bit. Prints a line for each feature that is there and each value that can
# be had.
PROBE = b"""\
import sys
try:
 import os
except ImportError:
 import uos as os
for n in ('hashlib.sha256','binascii.crc32','binascii.a2b_base64','os.ilistdir','os.stat','os.rename','os.mkdir',\
'os.statvfs','struct.pack_into','micropython.kbd_intr','deflate.DeflateIO','deflate.DeflateIO.write','machine.reset'):
 try:
  k=n.split('.')
  m=__import__(k[0])
  for a in k[1:]:
   m=getattr(m,a)
  print(n)
 except Exception:
  pass
for m,a in (('stdin','readinto'),('stdout','write')):
 try:
  getattr(getattr(sys,m).buffer,a)
  print(m+'.buffer')
 except Exception:
  pass
try:
 import select
 p=select.poll()
 p.register(sys.stdin,1)
 p.poll(0)
 print('stdin.poll')
except Exception:
 pass
for k,f in (('platform',lambda:sys.platform),('version',lambda:sys.version),('machine',lambda:os.uname()[4]),\
('free_memory',lambda:__import__('gc').mem_free()),('epoch',lambda:__import__('time').gmtime(0)[0]),\
('unique_id',lambda:__import__('machine').unique_id())):
 try:
  print(k+'='+repr(f()))
 except Exception:
  pass
"""

# Blocks that leave a board of that much free heap room to breathe: (free bytes at least, block).
BLOCKS = ((100_000, 2048), (50_000, 1024), (20_000, 512))
SMALL_BLOCK = 256
# On a heap of a few kilobytes the code that carries a block must fit too.
TINY_HEAP = 12_000
TINY_BLOCK = 64


# Of its name, its version and the like: the longest that is known has 80.
MAX_SAID_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the probe found. `features` are names as in `PROBE`; a value that could not be had is empty or zero."""

    features: frozenset[str]
    platform: str = ""
    version: str = ""
    machine: str = ""
    free_memory: int = 0
    epoch: int = 1970
    unique_id: str = ""

    def has(self, *features: str) -> bool:
        """Whether all of `features` are there."""
        return self.features.issuperset(features)

    @property
    def folders(self) -> bool:
        """False where all files lie flat in one folder."""
        return self.has("os.mkdir")

    def spelled(self, path: str) -> str:
        """An absolute path as this board's functions want it: a flat file system knows names without a slash."""
        return path if self.folders else path.removeprefix("/")

    @property
    def digest(self) -> str:
        """The best digest that the board can take of a file: `sha256`, `crc32`, or empty."""
        if self.has("hashlib.sha256"):
            return "sha256"
        return "crc32" if self.has("binascii.crc32") else ""

    @property
    def block_bytes(self) -> int:
        """How much to move at once."""
        if 0 < self.free_memory < TINY_HEAP:
            return TINY_BLOCK
        return next((block for free, block in BLOCKS if self.free_memory >= free), SMALL_BLOCK)

    @property
    def epoch_offset(self) -> int:
        """Seconds to add to the board's times to count from 1970; boards without a date set start at 2000."""
        return 946_684_800 if self.epoch == 2000 else 0


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a board says of itself. Sizes in bytes, None where it does not say."""

    platform: str
    version: str
    machine: str
    unique_id: str
    free_memory: int | None
    storage_bytes: int | None
    storage_free: int | None
    raw_paste: bool
    features: tuple[str, ...]


def parse(output: bytes) -> Capabilities:
    """Read what `PROBE` printed. Lines that cannot be understood are passed over."""
    features: set[str] = set()
    values: dict[str, Any] = {}
    for line in output.decode("utf-8", "replace").split("\n"):
        name, equals, value = line.strip().partition("=")
        if not equals:
            features.update([name] if name else [])
            continue
        try:
            values[name] = answers.value(value)
        except ValueError:
            continue
    identity = values.get("unique_id")
    return Capabilities(
        frozenset(features),
        platform=_said(values.get("platform", "")),
        version=_said(values.get("version", "")),
        machine=_said(values.get("machine", "")),
        free_memory=_whole(values.get("free_memory")),
        epoch=_whole(values.get("epoch")) or 1970,
        unique_id=identity[:MAX_SAID_CHARACTERS].hex() if isinstance(identity, bytes) else "",
    )


def _said(value: object) -> str:
    """What a board says of itself, as text that can be passed on: not too long, and without half a character."""
    return str(value)[:MAX_SAID_CHARACTERS].encode(errors="replace").decode()


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value in answers.WHOLE else 0
