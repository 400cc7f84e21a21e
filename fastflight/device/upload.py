"""Writing a file to a board, as a conversation that fetches its bytes.

The bytes go to a temporary file in the same folder, which is verified and then renamed over the old one: whatever
happens on the way, the old file stays whole. The next piece of content is fetched only when the one before is flushed
to the board's storage. A board that cannot rename (micro:bit) copies the verified file over the old one instead, once
it has shown that there is room; a copy that breaks off is done again, and the temporary file removed only after it. So
the content is never lost, but between a power cut and the next write the file may be in part.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastflight.device import frames, pieces
from fastflight.device import path as paths
from fastflight.device.capabilities import Capabilities
from fastflight.device.digest import Digest, digest
from fastflight.device.download import download
from fastflight.device.entry import Written
from fastflight.device.execute import execute
from fastflight.device.listing import stat
from fastflight.device.transfer import Resumption
from fastflight.errors import DeviceError, FileMissing, ProtocolError
from fastflight.protocol import Conversation, Deliver, RawRepl

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
if {start}:
 if os.stat({part!r})[6]!={start}:
  raise OSError('ESTALE')
_ff=open({part!r},{mode!r})
"""
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


@dataclass(slots=True)
class Unfinished:
    """A write to `path` that has not ended: what of it lies on the board."""

    path: str
    # A broken write leaves its part, to be resumed.
    keep: bool = False
    # The old file is being written over with the verified part.
    copying: bool = False

    @property
    def part(self) -> str:
        """The temporary name that the write goes to."""
        return paths.join(paths.parent(self.path), TEMPORARY_NAME)


def upload(
    repl: RawRepl, capabilities: Capabilities, unfinished: Unfinished, resume: Resumption | None = None
) -> Conversation[Written]:
    """Fetch content until it ends, and make it the file at `unfinished.path`."""
    path = unfinished.path
    names = {"path": capabilities.spelled(path), "part": capabilities.spelled(unfinished.part)}
    yield from execute(
        repl,
        capabilities,
        OPEN.format(**names, start=resume.part.size if resume else 0, mode="ab" if resume else "wb"),
        path,
        WRITE_SECONDS,
    )
    try:
        sending = frames if frames.taken_by(repl, capabilities) else pieces
        sent = yield from sending.send(repl, capabilities, path, Digest(resume))
        yield from execute(repl, capabilities, CLOSE, path, WRITE_SECONDS)
        verified = yield from _verify(repl, capabilities, unfinished.part, path, sent)
        if capabilities.has("os.rename"):
            yield from execute(repl, capabilities, RENAME.format(**names), path, WRITE_SECONDS)
        else:
            yield from _try_room(repl, capabilities, path, sent.size)
            unfinished.copying = True
            yield from execute(repl, capabilities, _copy(capabilities, unfinished), path, WRITE_SECONDS)
    except DeviceError:
        # The board answered, and is in step. After anything else, whoever recovers it settles the write.
        yield from settle(repl, capabilities, unfinished)
        raise
    return Written(sent.size, sent.sha256, verified)


def settle(repl: RawRepl, capabilities: Capabilities, unfinished: Unfinished) -> Conversation[None]:
    """Remove what a broken write left behind; do a broken copy again."""
    if unfinished.copying:
        # If it was done, there is no part to copy any more. If it cannot be, the part is all there is of the content.
        code = _copy(capabilities, unfinished)
    elif unfinished.keep:
        code = CLOSE
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


def _verify(repl: RawRepl, capabilities: Capabilities, part: str, path: str, sent: Digest) -> Conversation[str]:
    """Compare what lies in `part` with what was sent; how it was compared."""
    name, found = yield from digest(repl, capabilities, part)
    if name:
        expected = sent.sha256 if name == "sha256" else sent.crc32
    else:
        name, expected = "read back", sent.sha256
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
        return back.sha256
