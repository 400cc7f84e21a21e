"""Writes one file to a board, as a conversation that fetches the content.

The content goes to a temporary file in the same folder, which is verified and then replaces the old file (`staging`):
whatever happens on the way, the old file stays whole. The next piece of content is fetched when the board has flushed
the one before to its storage.

A binary upload that loses something on the line continues from what the board has. It keeps the current piece until
that is stored, and asks the board for the size and the digest of the temporary file. After three attempts in a row
that store nothing new it fails.
"""

from __future__ import annotations

from collections import deque

from fastflight.device.answers import routine_failure
from fastflight.device.listing import stat
from fastflight.device.transfer import frames, statements
from fastflight.device.transfer.digest import RunningDigest, digest
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.resident import HASH_SECONDS
from fastflight.device.transfer.staging import StagedFile, damaged, place, verify
from fastflight.device.transfer.types import Resumption, Transfer, WrittenFile
from fastflight.errors import DeviceError, DeviceMemory, FileMissing, ProtocolError, TransportTimeout
from fastflight.protocol import Conversation, Fetch, Receive, Send

# Attempts in a row that store nothing new.
FRUITLESS_ATTEMPTS = 3
# Long enough to see what has come, short enough not to be felt.
GLANCE_SECONDS = 0.001

# The board replaces the old file only when it receives so much of its digest back.
YES_CHARACTERS = 8
NO = b"N" * YES_CHARACTERS
# Dots that a board may send before a digest: one for 32 blocks, and no storage holds more of them than this.
MOST_DOTS = 1 << 20


class FileUpload:
    """One write to `staged`. `run` does all of it; `store` leaves out the last step, replacing the old file."""

    def __init__(self, link: BoardLink, staged: StagedFile, resume: Resumption | None, transfer: Transfer) -> None:
        self._link = link
        self._staged = staged
        self._transfer = transfer
        self._method = link.upload_method(transfer, staged.path)
        # What is flushed to the board's storage. The current piece comes after it; `_done` of its bytes are written.
        self._stored = RunningDigest(resume)
        self._piece: bytes | None = None
        self._done = 0
        # What lies on the board is wrong or gone, and its content is not here any more.
        self._hopeless = False
        # The board was told to replace the old file.
        self._accepted = False

    def run(self) -> Conversation[WrittenFile]:
        """Fetch content until it ends, and make it the file."""
        verified = (yield from self._binary(alone=True)) if self._method == "binary" else ""
        if not verified:
            yield from self._as_text()
            verified = yield from verify(self._link, self._staged, self._stored)
            yield from place(self._link, self._staged, self._stored.size)
        return WrittenFile(self._stored.size, self._stored.sha256, verified)

    def store(self) -> Conversation[RunningDigest]:
        """Fetch content until it ends, and leave it in the temporary file.

        After `DeviceFull` it may be called again, to continue: see `can_continue` and `find_stored`.
        """
        if self._method != "binary" or not (yield from self._binary(alone=False)):
            yield from self._as_text()
        return self._stored

    def find_stored(self) -> Conversation[None]:
        """Ask the board how much it has, before `store` is called again."""
        yield from self._find(ProtocolError("what was written is not there any more", where=self._staged.path))

    @property
    def can_continue(self) -> bool:
        """Whether a write that found the storage full can be continued."""
        return self._method == "binary"

    @property
    def _at(self) -> int:
        return self._stored.size + self._done

    def _as_text(self) -> Conversation[None]:
        # Boards that take files as text have little memory: theirs are deflated on request only.
        deflating = self._link.inflates(bool(self._transfer.deflate))
        able = self._link.capabilities.has("binascii.a2b_base64")
        base64 = able if self._method == "binary" else self._method == "base64"
        form = {"base64": base64, "deflating": deflating}
        yield from statements.send(self._link, self._staged, self._stored, self._piece, **form)

    def _binary(self, *, alone: bool) -> Conversation[str]:
        """Upload in binary. `alone`: verify the content and replace the old file.

        Returns how the content was verified, or `stored`; empty text when the board has no memory for the routine, and
        has written nothing.
        """
        fruitless = 0
        lost: Exception | None = None
        while True:
            reached = self._at
            try:
                if lost is not None and (yield from self._find(lost)):
                    return self._link.capabilities.digest
                return (yield from self._attempt(alone))
            except DeviceMemory:
                self._link.cramped = True
                if self._transfer.method == "binary" or self._at:
                    raise
                return ""
            except (TransportTimeout, ProtocolError) as error:
                fruitless = 1 if self._at > reached else fruitless + 1
                if self._link.repl.restarted():
                    raise self._link.was_reset(self._staged.path) from error
                if fruitless > 1 or self._hopeless:
                    # The routines may have arrived with a fault.
                    self._link.resident.forget()
                if fruitless > FRUITLESS_ATTEMPTS or self._hopeless:
                    raise
                lost = error
            self._link.lost()
            yield from self._link.repl.recover()

    def _attempt(self, alone: bool) -> Conversation[str]:
        link = self._link
        path = link.capabilities.spelled(self._staged.path)
        part = link.capabilities.spelled(self._staged.staging_path)
        if self._piece is None:
            self._piece = yield Fetch()
        deflating = link.inflates(self._transfer.deflate)
        size, step = frames.buffer_bytes(link.block), frames.step_bytes(link.window)
        yield from link.resident.call("put", path, part, self._at, size, step, where=self._staged.path)
        while self._piece:
            yield from self._send(step, deflating)
            yield from self._next()
        yield Send(frames.end(verify=alone))
        if alone:
            return (yield from self._verified())
        yield from link.resident.finish(self._staged.path)
        return "stored"

    def _next(self) -> Conversation[None]:
        """The current piece is stored: fetch the next one."""
        self._stored.add(self._piece or b"")
        self._done = 0
        self._piece = yield Fetch()
        # Fetching may have taken any time. A board that stopped waiting is at its prompt and runs content as code.
        try:
            self._link.repl.inbox.put_back((yield Receive(GLANCE_SECONDS)))
        except TransportTimeout:
            return
        raise ProtocolError("the board stopped waiting for more of the file", where=self._staged.path)

    def _send(self, step: int, deflating: bool) -> Conversation[None]:
        """Send what is left of the current piece."""
        link = self._link
        waiting: deque[frames.UploadStep] = deque()
        flying = 0
        for each in frames.steps(self._piece or b"", self._done, link.block, step, deflating):
            while waiting and flying + len(each.wire) > link.window:
                flying -= yield from self._answer(waiting, flying)
            yield Send(each.wire)
            waiting.append(each)
            flying += len(each.wire)
        while waiting:
            flying -= yield from self._answer(waiting, flying)

    def _answer(self, waiting: deque[frames.UploadStep], flying: int) -> Conversation[int]:
        """Read the answer to the oldest step, and return how many bytes have left the line with it."""
        step = waiting.popleft()
        within = self._link.patience(flying, step.done is not None)
        answer = yield from self._link.repl.inbox.exactly(1, within)
        if answer == b"E":
            raise (yield from self._refusal(within))
        if answer != b"A":
            self._link.repl.inbox.put_back(answer)
            raise ProtocolError(f"the board answered {answer!r} to a part of a file", where=self._staged.path)
        if step.done is not None:
            self._done = step.done
        return len(step.wire)

    def _refusal(self, within: float) -> Conversation[DeviceError | ProtocolError]:
        """Read why the board takes no more. It discards what it still receives until it is interrupted."""
        said = yield from self._link.repl.inbox.until(b"\x04", within)
        error = routine_failure(said, where=self._staged.path, platform=self._link.capabilities.platform)
        if isinstance(error, DeviceError) and b"ETIMEDOUT" not in said:
            # The board is at its prompt when the error is raised.
            yield from self._link.repl.recover()
            return error
        return damaged(self._staged.path)

    def _verified(self) -> Conversation[str]:
        """Compare the board's digest with that of what was sent, and have the board replace the old file."""
        inbox, path = self._link.repl.inbox, self._staged.path
        dots = 0
        while (mark := (yield from inbox.exactly(1, HASH_SECONDS))) == b"." and dots < MOST_DOTS:
            dots += 1
        if mark != b"D":
            inbox.put_back(mark)
            yield from self._link.resident.finish(path)
            raise ProtocolError(f"the board sent {mark!r} for a digest", where=path)
        name = self._link.capabilities.digest
        found = (yield from inbox.exactly(32 if name == "sha256" else 4, HASH_SECONDS)).hex()
        right = found == self._stored.hex(name)
        renames = self._link.capabilities.has("os.rename")
        self._accepted = right and renames
        yield Send(found[:YES_CHARACTERS].encode() if self._accepted else NO)
        yield from self._link.resident.finish(path)
        if not right:
            # All pieces were stored, so none is here to be sent again.
            self._hopeless = True
            raise damaged(path)
        if not renames:
            yield from place(self._link, self._staged, self._stored.size)
        return name

    def _find(self, error: Exception) -> Conversation[bool]:
        """Ask the board what it has. True when the file is in its place, and only the answer that said so was lost.

        Raises `error` when the upload cannot continue from there.
        """
        link, resident = self._link, self._link.resident
        if resident.has("put") and not (yield from resident.alive()):
            self._hopeless = True
            raise link.was_reset(self._staged.path) from error
        try:
            size = (yield from stat(link.repl, link.capabilities, self._staged.staging_path)).size
        except FileMissing:
            if (yield from self._is_in_place()):
                return True
            size = 0
        done = size - self._stored.size
        if 0 <= done <= len(self._piece or b"") and (yield from self._agrees(done)):
            self._done = done
        elif self._stored.size == 0:
            self._done = 0
        else:
            self._hopeless = True
            raise error
        return False

    def _agrees(self, done: int) -> Conversation[bool]:
        """Whether the board has what was sent, up to `done` bytes of the current piece."""
        sent = self._stored.after((self._piece or b"")[:done])
        name = self._link.capabilities.digest
        if not sent.size or not sent.known(name):
            # No digest to compare with. Each block was checked before it was written, and all are at the end.
            return True
        _, found = yield from digest(self._link, self._staged.staging_path)
        return found == sent.hex(name)

    def _is_in_place(self) -> Conversation[bool]:
        """Whether the board was told to replace the old file, and did."""
        if not self._accepted:
            return False
        name, found = yield from digest(self._link, self._staged.path)
        return found == self._stored.hex(name)
