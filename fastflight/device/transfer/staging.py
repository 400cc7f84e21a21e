"""What a write keeps on the board until it is done, and how that comes into its place.

A part lies in the folder of the file that it is to become, so that a rename does it. A board that cannot rename
(micro:bit) copies the verified part over the old file instead, once it has shown that there is room; a copy that breaks
off is done again, and the part removed only after it. So the content is never lost, but between a power cut and the
next write the file may be in part.

Such a board writes a file that does not exist yet under its own name (`direct`), which takes room for one copy instead
of two. It is verified there, and removed when the write fails (`docs/decisions/0047`).
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastflight.device.execute import execute, sealed
from fastflight.device.listing import stat
from fastflight.device.transfer.digest import RunningDigest, digest
from fastflight.device.transfer.download import download
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.types import PartialWrite
from fastflight.errors import DeviceError, DeviceFull, FileMissing, ProtocolError, RequestError, TransportError
from fastflight.protocol import Conversation, Deliver

# One name per folder, so that a broken transfer leaves at most one such file, which the next one writes over.
TEMPORARY_NAME = ".fastflight-part"
# Written and removed again, to see whether there is room for a copy.
TRIAL_NAME = ".fastflight-room"

# Erasing a flash sector takes up to a few hundred milliseconds, wear levelling a few of them.
WRITE_SECONDS = 15.0

CLOSE = """\
try:
 _ff.close()
except Exception:
 pass
"""
REMOVE = """\
import os
try:
 os.remove({part!r})
except OSError:
 pass
"""
RENAME = "import os\nos.rename({part!r},{path!r})\n"
# Of one that may be in its place already.
RENAME_LEFT = """\
import os
try:
 os.rename({part!r},{path!r})
except OSError:
 pass
"""
RENAME_ALL = "import os\nfor p,q in {pairs!r}:\n os.rename(p,q)\n"
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
class StagedFile:
    """A write to `path` that has not ended: what of it lies on the board."""

    path: str
    # A broken write leaves its part, to be resumed.
    keep: bool = False
    # Which of several parts it is; None for a write by itself.
    number: int | None = None
    # The old file is being written over with the verified part.
    copying: bool = False
    # It is verified, and one of several that are being put in their places.
    placing: bool = False
    # The file is new, and the board cannot rename: it is written under its own name.
    direct: bool = False

    @property
    def staging_path(self) -> str:
        """The name that the write goes to: a temporary one, except for a direct write."""
        if self.direct:
            return self.path
        name = TEMPORARY_NAME if self.number is None else f"{TEMPORARY_NAME}-{self.number}"
        return posixpath.join(posixpath.dirname(self.path), name)


def writable(path: str) -> str:
    """`path`, unless its name is one of ours: a file of that name would be taken for the part of another."""
    if posixpath.basename(path).startswith((TEMPORARY_NAME, TRIAL_NAME)):
        raise RequestError("the name is for what writes leave behind", where=path, hint="Give it another name")
    return path


def choose_place(link: BoardLink, staged: StagedFile) -> Conversation[None]:
    """Decide whether the write is a direct one."""
    if link.capabilities.has("os.rename"):
        return
    try:
        yield from stat(link.repl, link.capabilities, staged.path)
    except FileMissing:
        staged.direct = True


@contextlib.contextmanager
def explained(link: BoardLink, staged: StagedFile) -> Iterator[None]:
    """Errors of the write say what is particular to a board that cannot rename."""
    try:
        yield
    except TransportError as error:
        if staged.direct:
            place = f"a part of {staged.path} may lie on the board: write it again, or remove it"
            error.hint = f"{error.hint}; {place}" if error.hint else place[0].upper() + place[1:]
        raise
    except DeviceFull as error:
        if not staged.direct and not link.capabilities.has("os.rename"):
            second = "To replace a file, this board needs room for a second copy: remove the old one first"
            error.hint = f"{error.hint}. {second}" if error.hint else second
        raise
    except FileMissing:
        if staged.direct and not link.capabilities.folders:
            raise _bad_name(staged.path) from None
        raise


def left(link: BoardLink, path: str) -> Conversation[PartialWrite | None]:
    """What a broken write to `path` left that can be resumed: None where the board can take no digest."""
    part = StagedFile(path).staging_path
    try:
        size = (yield from stat(link.repl, link.capabilities, part)).size
        name, found = yield from digest(link, part)
    except FileMissing:
        return None
    return PartialWrite(size, name, found) if name else None


def verify(link: BoardLink, staged: StagedFile, sent: RunningDigest) -> Conversation[str]:
    """Compare what lies in the part with what was sent; how it was compared."""
    name, found = yield from digest(link, staged.staging_path)
    if not name:
        name, found = "read back", (yield from _read_back(link, staged.staging_path))
    if found != sent.hex(name if name == "crc32" else "sha256"):
        raise damaged(staged.path)
    return name


def damaged(path: str) -> ProtocolError:
    """What the board has is not what was sent."""
    return ProtocolError(
        "what the board wrote is not what was sent; the old file is untouched",
        where=path,
        hint="Write it again; if it happens often, use a lower speed or a better cable",
    )


def place(link: BoardLink, staged: StagedFile, size: int) -> Conversation[None]:
    """Make the verified part, of `size` bytes, the file."""
    if staged.direct:
        return
    path = staged.path
    if link.capabilities.has("os.rename"):
        names = {"path": link.capabilities.spelled(path), "part": link.capabilities.spelled(staged.staging_path)}
        yield from execute(link.repl, link.capabilities, RENAME.format(**names), path, WRITE_SECONDS)
        return
    yield from _try_room(link, path, size)
    staged.copying = True
    yield from execute(link.repl, link.capabilities, _copy(link, staged), path, WRITE_SECONDS)


def place_all(link: BoardLink, parts: Sequence[StagedFile]) -> Conversation[None]:
    """Make verified parts the files, on a board that can rename."""
    spelled = link.capabilities.spelled
    pairs = tuple((spelled(each.staging_path), spelled(each.path)) for each in parts)
    code = RENAME_ALL.format(pairs=pairs)
    yield from execute(link.repl, link.capabilities, code, parts[0].path, WRITE_SECONDS)


def settle(link: BoardLink, staged: StagedFile) -> Conversation[None]:
    """Remove what a broken write left behind, unless it is to be kept; go on with putting it in its place."""
    part, path = (link.capabilities.spelled(name) for name in (staged.staging_path, staged.path))
    if staged.copying:
        # If it was done, there is no part to copy any more. If it cannot be, the part is all there is of the content.
        code = _copy(link, staged)
    elif staged.placing:
        code = RENAME_LEFT.format(part=part, path=path) + REMOVE.format(part=part)
    else:
        code = CLOSE if staged.keep and not staged.direct else CLOSE + REMOVE.format(part=part)
    yield from link.repl.execute(sealed(link.repl, link.capabilities, code), WRITE_SECONDS)


def _copy(link: BoardLink, staged: StagedFile) -> str:
    return COPY.format(
        part=link.capabilities.spelled(staged.staging_path),
        path=link.capabilities.spelled(staged.path),
        size=link.capabilities.block_bytes,
    )


def _try_room(link: BoardLink, path: str, size: int) -> Conversation[None]:
    """Raise unless the file at `path` can grow to `size`: a copy would find out when the old file is gone."""
    name = path.encode()
    try:
        growth = size - (yield from stat(link.repl, link.capabilities, path)).size
    except FileMissing:
        growth = size + len(name)
    if growth <= 0:
        return
    # As long as the name that it stands for, which is tried with it.
    trial = posixpath.join(posixpath.dirname(path), TRIAL_NAME).ljust(len(name), "-")
    code = TRIAL.format(path=link.capabilities.spelled(trial), size=growth, block=link.capabilities.block_bytes)
    try:
        yield from execute(link.repl, link.capabilities, code, path, WRITE_SECONDS)
    except FileMissing:
        raise _bad_name(path) from None


def _bad_name(path: str) -> DeviceError:
    """What a flat file system means by `file not found` when it is told to write."""
    return DeviceError(
        "the board does not accept the name", where=path, hint="Use a shorter name", errno="ENAMETOOLONG"
    )


def _read_back(link: BoardLink, part: str) -> Conversation[str]:
    """The sha256 of a file as it is read from the board."""
    back = RunningDigest()
    steps = download(link, part)
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
