"""Finds out what a board can do.

`PROBE` is code that runs on the board once per connection. It tries each feature, because a board's name does not tell
which features its firmware has. `parse` turns its output into `Capabilities`. All other modules decide by these how to
work with the board. A wrong answer would be dangerous: on a board that seems to have no folders, paths are relative to
the working directory. So the output ends with its crc32.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import Any

from fastflight.device import answers
from fastflight.errors import ProtocolError
from fastflight.transport.url import LINES

# Small enough for the 8 KB heap of a micro:bit. Prints a line for each feature that the board has, and `name=value` for
# each value that it can tell. The last line is the crc32 of the lines before it, if the board can compute it.
PROBE = b"""\
o=''
import sys
try:
 import os
except ImportError:
 import uos as os
for n in ('hashlib.sha256','binascii.crc32','binascii.a2b_base64','os.ilistdir','os.stat','os.rename','os.mkdir',\
'os.statvfs','struct.pack_into','micropython.kbd_intr','deflate.DeflateIO','machine.reset',\
'machine.Timer','sys.modules'):
 try:
  k=n.split('.')
  m=__import__(k[0])
  for a in k[1:]:
   m=getattr(m,a)
  o+=n+'\\n'
 except Exception:
  pass
for m,a in (('stdin','readinto'),('stdout','write')):
 try:
  getattr(getattr(sys,m).buffer,a)
  o+=m+'.buffer\\n'
 except Exception:
  pass
try:
 import select
 p=select.poll()
 p.register(sys.stdin,1)
 p.poll(0)
 o+='stdin.poll\\n'
except Exception:
 pass
for k,f in (('platform',lambda s=sys:s.platform),('version',lambda s=sys:s.version),\
('machine',lambda o=os:o.uname()[4]),\
('free_memory',lambda:__import__('gc').mem_free()),('epoch',lambda:__import__('time').gmtime(0)[0]),\
('unique_id',lambda:__import__('machine').unique_id())):
 try:
  o+=k+'='+repr(f())+'\\n'
 except Exception:
  pass
print(o,end='')
try:
 import binascii
 print('crc32=%d'%(binascii.crc32(o.encode())&0xffffffff))
except Exception:
 pass
"""

# Block sizes that leave enough free heap: (minimum of free bytes, block size in bytes).
BLOCKS = ((100_000, 2048), (50_000, 1024), (20_000, 512))
SMALL_BLOCK = 256
# On a heap of a few kilobytes, the code that holds a block must fit as well.
TINY_HEAP = 12_000
TINY_BLOCK = 64


# The limit for each text that a board reports (platform, version, machine). The longest known one has 80 characters.
MAX_SAID_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the probe found. `features` are the names in `PROBE`; values that the board did not tell are empty or 0."""

    features: frozenset[str]
    platform: str = ""
    version: str = ""
    machine: str = ""
    free_memory: int = 0
    epoch: int = 1970
    unique_id: str = ""

    def has(self, *features: str) -> bool:
        """Return whether the board has all of `features`."""
        return self.features.issuperset(features)

    @property
    def folders(self) -> bool:
        """Whether the board has folders; false if all files are in one flat folder."""
        return self.has("os.mkdir")

    def native_path(self, path: str) -> str:
        """Return an absolute path as the board's functions take it: without the slash if it has no folders."""
        return path if self.folders else path.removeprefix("/")

    @property
    def digest(self) -> str:
        """The best digest that the board can compute: `sha256`, `crc32`, or empty for none."""
        if self.has("hashlib.sha256"):
            return "sha256"
        return "crc32" if self.has("binascii.crc32") else ""

    @property
    def block_bytes(self) -> int:
        """Bytes of a file to move in one block."""
        if 0 < self.free_memory < TINY_HEAP:
            return TINY_BLOCK
        return next((block for free, block in BLOCKS if self.free_memory >= free), SMALL_BLOCK)

    @property
    def epoch_offset(self) -> int:
        """Seconds to add to the board's times to get seconds since 1970: many ports count from 2000."""
        return 946_684_800 if self.epoch == 2000 else 0


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a board reports about itself. Memory and storage are in bytes, None if the board does not tell.

    `kind`: `micropython`, or `lines` for a device that only prints, of which nothing else is known.
    """

    kind: str
    platform: str
    version: str
    machine: str
    unique_id: str
    free_memory: int | None
    storage_bytes: int | None
    storage_free: int | None
    raw_paste: bool
    # What lets requests work while the board's program runs: `aiorepl`, `agent` or `none`.
    capabilities: str
    features: tuple[str, ...]


# That of a device that only prints.
PRINTS = DeviceInfo(LINES, "", "", "", "", None, None, None, False, "none", ())


def parse(output: bytes) -> Capabilities:
    """Parse the output of `PROBE`. Lines that cannot be parsed are ignored. `ProtocolError` if its crc32 is wrong."""
    features: set[str] = set()
    values: dict[str, Any] = {}
    said, mark, check = output.replace(b"\r\n", b"\n").rpartition(b"\ncrc32=")
    said = said + b"\n" if mark else check
    if check.strip() != b"%d" % binascii.crc32(said) if mark else b"binascii.crc32" in said:
        raise ProtocolError(
            "what the board can do was changed or lost on the line",
            hint="Try again; if it happens often, use a lower speed or a better cable",
        )
    for line in said.decode("utf-8", "replace").split("\n"):
        name, equals, value = line.strip().partition("=")
        if not equals:
            features.update([name] if name else [])
            continue
        try:
            values[name] = answers.literal(value)
        except ValueError:
            continue
    identity = values.get("unique_id")
    return Capabilities(
        frozenset(features),
        platform=_as_text(values.get("platform", "")),
        version=_as_text(values.get("version", "")),
        machine=_as_text(values.get("machine", "")),
        free_memory=_as_integer(values.get("free_memory")),
        epoch=_as_integer(values.get("epoch")) or 1970,
        unique_id=identity[:MAX_SAID_CHARACTERS].hex() if isinstance(identity, bytes) else "",
    )


def _as_text(value: object) -> str:
    """Return a value that the board reported as text that is safe to pass on: short, and valid UTF-8."""
    return str(value)[:MAX_SAID_CHARACTERS].encode(errors="replace").decode()


def _as_integer(value: object) -> int:
    return value if isinstance(value, int) and value in answers.WHOLE else 0
