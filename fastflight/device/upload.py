"""Writing a file to a board, as a conversation that fetches its bytes.

The bytes go to a temporary file in the same folder, which is verified and then renamed over the old one: whatever
happens on the way, the old file stays whole. The next piece of content is fetched only when the one before is flushed
to the board's storage. A board that cannot rename (micro:bit) copies the verified file over the old one instead, once
it has shown that there is room; a copy that breaks off is done again, and the temporary file removed only after it. So
the content is never lost, but between a power cut and the next write the file may be in part.
"""

from __future__ import annotations

import binascii
import hashlib
from dataclasses import dataclass

from fastflight.device import path as paths
from fastflight.device.capabilities import Capabilities
from fastflight.device.download import download
from fastflight.device.entry import Written
from fastflight.device.execute import execute
from fastflight.device.listing import stat
from fastflight.errors import DeviceError, DeviceFull, FileMissing, ProtocolError
from fastflight.protocol import Conversation, Deliver, Fetch, RawRepl

# One name per folder, so that a broken transfer leaves at most one such file, which the next one writes over.
TEMPORARY_NAME = ".fastflight-part"

# Written and removed again, to see whether there is room for a copy.
TRIAL_NAME = ".fastflight-room"

# Erasing a flash sector takes up to a few hundred milliseconds, wear levelling a few of them.
WRITE_SECONDS = 15.0

OPEN = """\
import os
try:
 _d=os.stat({path!r})[0]&0x4000
except (OSError,AttributeError):
 _d=0
if _d:
 raise OSError('EISDIR')
_ff=open({part!r},'wb')
"""
BLOCK_BASE64 = "import binascii\nprint(_ff.write(binascii.a2b_base64({data!r})))\n"
BLOCK_LITERAL = "print(_ff.write({data!r}))"
FLUSH = "if hasattr(_ff,'flush'):\n _ff.flush()\n"
CLOSE = "_ff.close()\ndel _ff\n"
DISCARD = """\
import os
try:
 _ff.close()
except Exception:
 pass
try:
 os.remove({part!r})
except OSError:
 pass
"""
RENAME = "import os\nos.rename({part!r},{path!r})\n"
TRIAL = """\
import os
n={size}
f=open({path!r},'wb')
try:
 while n>0:
  n-=f.write(b' '*{block})
finally:
 f.close()
 try:
  os.remove({path!r})
 except OSError:
  pass
"""
COPY = """\
import os
with open({part!r},'rb') as s:
 with open({path!r},'wb') as d:
  while 1:
   b=s.read({size})
   if not b:
    break
   d.write(b)
os.remove({part!r})
"""
SHA256 = """\
def _ff():
 import hashlib
 h=hashlib.sha256()
 b=bytearray({size})
 m=memoryview(b)
 with open({path!r},'rb') as f:
  k=0
  while 1:
   n=f.readinto(b)
   if not n:
    break
   h.update(m[:n])
   k+=1
   if k%32==0:
    print('.')
 print(''.join('%02x'%c for c in h.digest()))
_ff()
"""
CRC32 = """\
def _ff():
 import binascii
 c=0
 b=bytearray({size})
 m=memoryview(b)
 with open({path!r},'rb') as f:
  k=0
  while 1:
   n=f.readinto(b)
   if not n:
    break
   c=binascii.crc32(m[:n],c)
   k+=1
   if k%32==0:
    print('.')
 print('%08x'%(c&0xffffffff))
_ff()
"""


class Digest:
    """What was sent, as it was sent."""

    def __init__(self) -> None:
        self.size = 0
        self.crc32 = 0
        self.sha256 = hashlib.sha256()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self.crc32 = binascii.crc32(data, self.crc32)
        self.sha256.update(data)


@dataclass(slots=True)
class Unfinished:
    """A write to `path` that has not ended: what of it lies on the board."""

    path: str
    # The old file is being written over with the verified part.
    copying: bool = False

    @property
    def part(self) -> str:
        """The temporary name that the write goes to."""
        return paths.join(paths.parent(self.path), TEMPORARY_NAME)


def upload(repl: RawRepl, capabilities: Capabilities, unfinished: Unfinished) -> Conversation[Written]:
    """Fetch content until it ends, and make it the file at `unfinished.path`."""
    path = unfinished.path
    names = {"path": capabilities.spelled(path), "part": capabilities.spelled(unfinished.part)}
    yield from execute(repl, capabilities, OPEN.format(**names), path, WRITE_SECONDS)
    try:
        sent = yield from _send(repl, capabilities, path)
        yield from execute(repl, capabilities, CLOSE, path, WRITE_SECONDS)
        verified = yield from _verify(repl, capabilities, unfinished.part, path, sent)
        if capabilities.has("os.rename"):
            yield from execute(repl, capabilities, RENAME.format(**names), path, WRITE_SECONDS)
        else:
            yield from _try_room(repl, capabilities, path, sent.size)
            unfinished.copying = True
            yield from execute(repl, capabilities, _copy(capabilities, unfinished), path, WRITE_SECONDS)
    except (DeviceError, ProtocolError):
        # The REPL is still in step here; after a broken line, whoever recovers it settles the write.
        yield from settle(repl, capabilities, unfinished)
        raise
    return Written(sent.size, sent.sha256.hexdigest(), verified)


def settle(repl: RawRepl, capabilities: Capabilities, unfinished: Unfinished) -> Conversation[None]:
    """Remove what a broken write left behind; do a broken copy again."""
    if unfinished.copying:
        # If it was done, there is no part to copy any more. If it cannot be, the part is all there is of the content.
        code = _copy(capabilities, unfinished)
    else:
        code = DISCARD.format(part=capabilities.spelled(unfinished.part))
    yield from repl.execute(code.encode(), WRITE_SECONDS)


def _copy(capabilities: Capabilities, unfinished: Unfinished) -> str:
    return COPY.format(
        part=capabilities.spelled(unfinished.part),
        path=capabilities.spelled(unfinished.path),
        size=capabilities.block_bytes,
    )


def _try_room(repl: RawRepl, capabilities: Capabilities, path: str, size: int) -> Conversation[None]:
    """Raise unless the file at `path` can grow to `size`: a copy would find out when the old file is gone."""
    name = path.encode()
    try:
        growth = size - (yield from stat(repl, capabilities, path)).size
    except FileMissing:
        growth = size + len(name)
    if growth <= 0:
        return
    # As long as the name that it stands for, which is tried with it.
    trial = paths.join(paths.parent(path), TRIAL_NAME).ljust(len(name), "-")
    code = TRIAL.format(path=capabilities.spelled(trial), size=growth, block=capabilities.block_bytes)
    try:
        yield from execute(repl, capabilities, code, path, WRITE_SECONDS)
    except FileMissing:
        raise DeviceError("the board does not accept the name", where=path, hint="Use a shorter name") from None


def _send(repl: RawRepl, capabilities: Capabilities, path: str) -> Conversation[Digest]:
    size = capabilities.block_bytes
    base64 = capabilities.has("binascii.a2b_base64")
    sent = Digest()
    while piece := (yield Fetch()):
        for start in range(0, len(piece), size):
            block = piece[start : start + size]
            code = (
                BLOCK_BASE64.format(data=binascii.b2a_base64(block, newline=False))
                if base64
                else BLOCK_LITERAL.format(data=block)
            )
            answer = yield from execute(repl, capabilities, code, path, WRITE_SECONDS)
            if answer.strip() != str(len(block)).encode():
                raise DeviceFull(
                    f"the board wrote {answer.strip().decode(errors='replace')} of {len(block)} bytes",
                    where=path,
                    hint="Its storage is full: remove files you do not need",
                )
            sent.add(block)
        yield from execute(repl, capabilities, FLUSH, path, WRITE_SECONDS)
    return sent


def digest(repl: RawRepl, capabilities: Capabilities, path: str) -> Conversation[tuple[str, str]]:
    """The name and the hexadecimal digest of the best hash that the board itself can take of a file."""
    for feature, code in (("hashlib.sha256", SHA256), ("binascii.crc32", CRC32)):
        if capabilities.has(feature):
            text = code.format(path=capabilities.spelled(path), size=capabilities.block_bytes)
            answer = yield from execute(repl, capabilities, text, path, WRITE_SECONDS)
            # Dots before it said that the board was still at work.
            return feature.rpartition(".")[2], answer.decode("ascii", "replace").split()[-1]
    return "", ""


def _verify(repl: RawRepl, capabilities: Capabilities, part: str, path: str, sent: Digest) -> Conversation[str]:
    """Compare what lies in `part` with what was sent; how it was compared."""
    name, found = yield from digest(repl, capabilities, part)
    if name:
        expected = sent.sha256.hexdigest() if name == "sha256" else f"{sent.crc32:08x}"
    else:
        name, expected = "read back", sent.sha256.hexdigest()
        found = yield from _read_back(repl, capabilities, part)
    if found != expected:
        raise ProtocolError(
            "what the board wrote is not what was sent; the old file is untouched",
            where=path,
            hint="Write it again; if it happens often, use a lower speed or a better cable",
        )
    return name


def _read_back(repl: RawRepl, capabilities: Capabilities, part: str) -> Conversation[str]:
    """The sha256 of a file as it is read from the board."""
    back = Digest()
    steps = download(repl, capabilities, part)
    try:
        step = next(steps)
        while True:
            if isinstance(step, Deliver):
                back.add(step.data)
                step = steps.send(b"")
            else:
                step = steps.send((yield step))
    except StopIteration:
        return back.sha256.hexdigest()
