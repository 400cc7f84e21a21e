"""Writes one file to a board, as a conversation that fetches the content.

The content goes to a temporary file in the same folder, which is verified and then replaces the old file (`staging`).
If the upload breaks, the old file stays whole. The next piece of content is fetched when the board has flushed the
previous one to its storage.

When a binary upload loses bytes on the line, it continues after what the board has stored: it keeps the current piece
until that is stored, and asks the board for the size and the digest of the temporary file. It fails after more than
`FRUITLESS_ATTEMPTS` attempts in a row that store nothing new.
"""

from __future__ import annotations

from collections import deque

from fastflight.device.answers import routine_failure
from fastflight.device.listing import stat
from fastflight.device.transfer import frames, statements
from fastflight.device.transfer.digest import RunningDigest, digest
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.resident import HASH_SECONDS
from fastflight.device.transfer.staging import StagedFile, damaged_error, place, verify
from fastflight.device.transfer.types import Resumption, Transfer, WrittenFile
from fastflight.errors import DeviceError, DeviceMemory, FileMissing, ProtocolError, TransportTimeout
from fastflight.protocol import Conversation, Fetch, Receive, Send

# The upload fails after more attempts in a row than this that store nothing new.
FRUITLESS_ATTEMPTS = 3
# A read with this timeout returns what has already arrived, and costs no noticeable time.
GLANCE_SECONDS = 0.0001

# The board replaces the old file only when it receives this many characters of its digest back.
CONFIRMATION_CHARACTERS = 8
REJECTION = b"N" * CONFIRMATION_CHARACTERS
# Dots that a board may send before a digest: it sends one for every 32 blocks, and no storage holds that many blocks.
MOST_DOTS = 1 << 20


class FileUpload:
    """One write to `staged`. `run` does all of it; `store` does all but verify the file and replace the old one."""

    def __init__(self, link: BoardLink, staged: StagedFile, resume: Resumption | None, transfer: Transfer) -> None:
        self._link = link
        self._staged = staged
        self._transfer = transfer
        self._method = link.upload_method(transfer, staged.path)
        # The content that is flushed to the board's storage. `_piece` follows it, of which `_done` bytes are written.
        self._stored = RunningDigest(resume)
        self._piece: bytes | None = None
        self._done = 0
        # The temporary file is wrong or gone, and the host does not have its content any more.
        self._unrecoverable = False
        # The board was told to replace the old file.
        self._accepted = False

    def run(self) -> Conversation[WrittenFile]:
        """Fetch content until it ends, verify it and replace the old file."""
        verified = (yield from self._binary(replace=True)) if self._method == "binary" else ""
        if not verified:
            yield from self._as_text()
            verified = yield from verify(self._link, self._staged, self._stored)
            yield from place(self._link, self._staged, self._stored.size)
        return WrittenFile(self._stored.size, self._stored.sha256, verified)

    def store(self) -> Conversation[RunningDigest]:
        """Fetch content until it ends, and leave it in the temporary file. Return its digest.

        After `DeviceFull`, if `can_continue`: free storage, call `find_position`, then call this again.
        """
        if self._method != "binary" or not (yield from self._binary(replace=False)):
            yield from self._as_text()
        return self._stored

    def find_position(self) -> Conversation[None]:
        """Ask the board how much it has stored. Call this before `store` is called again."""
        yield from self._resynchronize(ProtocolError("what was written is not there any more", where=self._staged.path))

    @property
    def can_continue(self) -> bool:
        """Whether the upload can continue after `DeviceFull`."""
        return self._method == "binary"

    @property
    def _position(self) -> int:
        """How many bytes of the content are on the board."""
        return self._stored.size + self._done

    def _as_text(self) -> Conversation[None]:
        if self._link.agent is not None:
            yield from statements.send_to_agent(self._link, self._link.agent, self._staged, self._stored, self._piece)
            return
        # Boards that receive files as text have little memory: deflate only on request.
        deflating = self._link.deflates(bool(self._transfer.deflate))
        has_base64 = self._link.capabilities.has("binascii.a2b_base64")
        base64 = has_base64 if self._method == "binary" else self._method == "base64"
        form = {"base64": base64, "deflating": deflating}
        yield from statements.send(self._link, self._staged, self._stored, self._piece, **form)

    def _binary(self, *, replace: bool) -> Conversation[str]:
        """Upload in binary. With `replace`, verify the content and replace the old file.

        Return how the content was verified, or `stored` without `replace`; empty text if the board has no memory for
        the routine and has written nothing.
        """
        fruitless = 0
        failure: Exception | None = None
        while True:
            position = self._position
            try:
                if failure is not None and (yield from self._resynchronize(failure)):
                    return self._link.capabilities.digest
                return (yield from self._attempt(replace))
            except DeviceMemory:
                self._link.lacks_upload_memory = True
                if self._transfer.method == "binary" or self._position:
                    raise
                return ""
            except (TransportTimeout, ProtocolError) as error:
                fruitless = 1 if self._position > position else fruitless + 1
                if self._link.repl.restarted():
                    raise self._link.was_reset(self._staged.path) from error
                if fruitless > 1 or self._unrecoverable:
                    # The routines may have been damaged on the line.
                    self._link.resident.forget()
                if fruitless > FRUITLESS_ATTEMPTS or self._unrecoverable:
                    raise
                failure = error
            self._link.report_loss()
            yield from self._link.repl.recover()

    def _attempt(self, replace: bool) -> Conversation[str]:
        link = self._link
        path = link.capabilities.native_path(self._staged.path)
        part = link.capabilities.native_path(self._staged.staging_path)
        if self._piece is None:
            self._piece = yield Fetch()
        deflating = link.deflates(self._transfer.deflate)
        size, step = frames.buffer_bytes(link.block), frames.step_bytes(link.window)
        coming = self._staged.coming(self._position, len(self._piece) - self._done)
        yield from link.resident.call("put", path, part, self._position, size, step, coming, where=self._staged.path)
        while self._piece:
            yield from self._send(step, deflating)
            yield from self._fetch_next()
        yield Send(frames.end(verify=replace))
        if replace:
            return (yield from self._verify_and_replace())
        yield from link.resident.finish(self._staged.path)
        return "stored"

    def _fetch_next(self) -> Conversation[None]:
        """Fetch the next piece, after the current one is stored."""
        self._stored.add(self._piece or b"")
        self._done = 0
        self._piece = yield Fetch()
        # Fetching may take any time. A board that has stopped waiting reports that; sent content would be lost, or run
        # as code at its prompt.
        try:
            self._link.repl.inbox.put_back((yield Receive(GLANCE_SECONDS)))
        except TransportTimeout:
            return
        raise ProtocolError("the board stopped waiting for more of the file", where=self._staged.path)

    def _send(self, step: int, deflating: bool) -> Conversation[None]:
        """Send the rest of the current piece."""
        link = self._link
        unanswered: deque[frames.UploadStep] = deque()
        in_flight = 0
        # Steps that fit into the window together are sent together: each call to the system costs time.
        unsent = bytearray()
        for each in frames.steps(self._piece or b"", self._done, link.block, step, deflating):
            if in_flight + len(each.wire) > link.window:
                yield Send(bytes(unsent))
                unsent.clear()
                while unanswered and (in_flight + len(each.wire) > link.window or len(link.repl.inbox)):
                    in_flight -= yield from self._read_answer(unanswered, in_flight)
            unsent += each.wire
            unanswered.append(each)
            in_flight += len(each.wire)
        yield Send(bytes(unsent))
        while unanswered:
            in_flight -= yield from self._read_answer(unanswered, in_flight)

    def _read_answer(self, unanswered: deque[frames.UploadStep], in_flight: int) -> Conversation[int]:
        """Read the answer to the oldest step, and return the size of that step."""
        step = unanswered.popleft()
        within = self._link.answer_timeout(in_flight, step.done is not None)
        answer = yield from self._link.repl.inbox.exactly(1, within)
        if answer == b"E":
            raise (yield from self._read_failure(within))
        if answer != b"A":
            self._link.repl.inbox.put_back(answer)
            raise ProtocolError(f"the board answered {answer!r} to a part of a file", where=self._staged.path)
        if step.done is not None:
            self._done = step.done
        return len(step.wire)

    def _read_failure(self, within: float) -> Conversation[DeviceError | ProtocolError]:
        """Read the traceback of `put` and return its error. Until interrupted, the board discards its input."""
        stderr = yield from self._link.repl.inbox.until(b"\x04", within)
        error = routine_failure(stderr, where=self._staged.path, platform=self._link.capabilities.platform)
        if isinstance(error, DeviceError) and b"ETIMEDOUT" not in stderr:
            # Not to be repeated: bring the board to its prompt before the error is raised.
            yield from self._link.repl.recover()
            return error
        return damaged_error(self._staged.path)

    def _verify_and_replace(self) -> Conversation[str]:
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
        matches = found == self._stored.hex(name)
        can_rename = self._link.capabilities.has("os.rename")
        self._accepted = matches and can_rename
        yield Send(found[:CONFIRMATION_CHARACTERS].encode() if self._accepted else REJECTION)
        yield from self._link.resident.finish(path)
        if not matches:
            # All pieces were stored, so the host has none of them to send again.
            self._unrecoverable = True
            raise damaged_error(path)
        if not can_rename:
            yield from place(self._link, self._staged, self._stored.size)
        return name

    def _resynchronize(self, error: Exception) -> Conversation[bool]:
        """Ask the board what it has stored, and set `_done` by it.

        Return true if the board has already replaced the old file, so that only its answer was lost. Raise `error` if
        the upload cannot continue.
        """
        link, resident = self._link, self._link.resident
        if resident.has("put") and not (yield from resident.alive()):
            self._unrecoverable = True
            raise link.was_reset(self._staged.path) from error
        try:
            size = (yield from stat(link.repl, link.capabilities, self._staged.staging_path)).size
        except FileMissing:
            if (yield from self._is_in_place()):
                return True
            size = 0
        done = size - self._stored.size
        if 0 <= done <= len(self._piece or b"") and (yield from self._is_intact(done)):
            self._done = done
        elif self._stored.size == 0:
            self._done = 0
        else:
            self._unrecoverable = True
            raise error
        return False

    def _is_intact(self, done: int) -> Conversation[bool]:
        """Return whether the temporary file is what was sent, up to `done` bytes of the current piece."""
        sent = self._stored.after((self._piece or b"")[:done])
        name = self._link.capabilities.digest
        if not sent.size or not sent.covers_sent(name):
            # No digest to compare with. Each block was checked before it was written, and the whole file is at the end.
            return True
        _, found = yield from digest(self._link, self._staged.staging_path)
        return found == sent.hex(name)

    def _is_in_place(self) -> Conversation[bool]:
        """Return whether the board was told to replace the old file, and has done so."""
        if not self._accepted:
            return False
        name, found = yield from digest(self._link, self._staged.path)
        return found == self._stored.hex(name)
