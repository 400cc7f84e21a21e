"""Reads a file from a board, as a conversation that delivers its bytes in order.

A routine on the board sends blocks. In binary (`routines.GET`) a block is a mark, its length, its crc32 and its bytes.
A board that cannot send binary prints a line for each block: a check, the form, and the bytes as base64 or a literal.
The agent of a program that goes on sends its own frames.

All delivered bytes have been checked. The check of each block continues that of the previous one, and the last block is
empty, so lost blocks and a missing end are detected. The routine's output ends with `\\x04`, as that of all code does.
This is not the mark of a block, so no byte of the file can be mistaken for the end.

A download that loses bytes continues after the last byte that was delivered. It fails after more than
`FRUITLESS_ATTEMPTS` attempts in a row that deliver nothing new.
"""

from __future__ import annotations

import binascii
import struct

from fastflight.device import answers
from fastflight.device.answers import routine_failure
from fastflight.device.execute import Kept, can_seal, execute
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.types import AUTO, Transfer
from fastflight.errors import ProtocolError, TransportTimeout
from fastflight.protocol import Conversation, Deliver
from fastflight.protocol.agent import AgentRepl

# A flash read between two blocks takes milliseconds, a garbage collection on a large heap a few hundred.
STALL_SECONDS = 5.0
FRUITLESS_ATTEMPTS = 3

# Blocks that have arrived together are delivered in pieces of about this size.
PIECE_BYTES = 64 * 1024

HEADER = struct.Struct("<BHI")
# The first byte of a block.
MARK = 1
END = 4

DEFINE = """\
def _ffd(o,l):
{imports} f=open({path!r},'rb')
 try:
  while o:
   o-=len(f.read(min(o,{size}))) or o
  c=0
  d=1
  while d:
   d=f.read({size} if l<0 or l>{size} else l)
   l-=len(d)
   c={check}
   print(c,{form!r},{data})
 finally:
  f.close()
"""
CALL = "_ffd({offset},{count})\n"
READING = "_ffd"
BASE64 = "binascii.b2a_base64(d)"
# The check of a line continues that of the previous line, so a lost line and swapped lines are detected.
CRC32 = "binascii.crc32(d,c)&0xffffffff"
# For boards without crc32. Its values fit into small integers, which need no memory on the heap.
SUM = "(c*7+sum(d))&0xffffff"

# The agent reads the file itself. Content crosses the line in its frames, which have checksums of their own.
AGENT_OPEN = "import fastflight_agent as _ff\n_ff.f=open({path!r},'rb')\n_ff.pos=_ff.f.seek({offset})\n"
AGENT_CLOSE = "import fastflight_agent as _ff\n_ff.f.close()\n"
# The agent may have to wait for the board's program.
AGENT_SECONDS = 15.0
# How much content a single request asks for: what a host that goes away leaves on the line.
AGENT_PART_BYTES = 32 * 1024
# How long the program stands still while the agent sends a block, in seconds.
AGENT_BLOCK_SECONDS = 0.04
LEAST_AGENT_BLOCK, MOST_AGENT_BLOCK = 256, 2048

# How many blocks one command sends beside a program, which stands still meanwhile.
PART_BLOCKS = 2

# The longest line of the text form: four characters a byte, the check, and the quotes.
LINE_LIMIT = 4 * 2048 + 64


def download(
    link: BoardLink, path: str, offset: int = 0, limit: int | None = None, transfer: Transfer = AUTO
) -> Conversation[None]:
    """Deliver the bytes of the file at `path` from `offset` on, at most `limit` (None: all), in order and checked.

    Raise `DeviceError` if the board cannot read the file, `TransportTimeout` or `ProtocolError` after too many losses.
    """
    rest = _Download(link, path, link.download_method(transfer, path), offset, limit)
    fruitless = 0
    while True:
        offset = rest.offset
        try:
            if fruitless and link.resident.has("get") and not (yield from link.resident.alive()):
                break
            yield from rest.attempt()
            return
        except (TransportTimeout, ProtocolError) as error:
            fruitless = 1 if rest.offset > offset else fruitless + 1
            if link.repl.restarted():
                raise link.was_reset(path) from error
            if fruitless > 1:
                # The routine may have been damaged on the line.
                link.resident.forget()
            if fruitless > FRUITLESS_ATTEMPTS:
                raise
        link.report_loss()
        yield from link.repl.recover()
    raise link.was_reset(path)


class _Download:
    """What is left of a download: `limit` bytes (None: all) from `offset` on. Delivering bytes moves `offset`."""

    def __init__(self, link: BoardLink, path: str, method: str, offset: int, limit: int | None) -> None:
        self.offset = offset
        self.method = method
        self._link = link
        self._path = path
        self._remaining = -1 if limit is None else limit

    def attempt(self) -> Conversation[None]:
        """Have the board send the rest, and deliver it."""
        link, repl = self._link, self._link.repl
        native_path = link.capabilities.native_path(self._path)
        if link.agent is not None:
            yield from self._from_agent(link.agent, native_path)
            return
        size = link.statement_bytes
        if self.method == "binary":
            size = link.block
            yield from link.resident.call("get", native_path, self.offset, self._remaining, size, where=self._path)
        else:
            base64 = self.method == "base64"
            crc32 = link.capabilities.has("binascii.crc32")
            code = DEFINE.format(
                imports=" import binascii\n" if base64 or crc32 else "",
                check=CRC32 if crc32 else SUM,
                path=native_path,
                size=size,
                form="b" if base64 else "r",
                data=BASE64 if base64 else "d",
            )
            if link.is_beside:
                yield from self._in_parts(code, Kept.at(READING, link.capabilities))
                return
            code += CALL.format(offset=self.offset, count=self._remaining)
            yield from repl.submit(code.encode(), sealed=can_seal(repl, link.capabilities))
        yield from self._take(size)

    def _from_agent(self, agent: AgentRepl, native_path: str) -> Conversation[None]:
        """Have the agent send the rest. Between two of its blocks the program goes on."""
        link, size = self._link, agent_block_bytes(self._link)
        code = AGENT_OPEN.format(path=native_path, offset=self.offset)
        yield from execute(agent, link.capabilities, code, self._path, AGENT_SECONDS)
        ended = False
        while self._remaining and not ended:
            end = self.offset + (AGENT_PART_BYTES if self._remaining < 0 else min(self._remaining, AGENT_PART_BYTES))
            yield from agent.ask_for(end - self.offset, size)
            while self.offset < end and not ended:
                data, stderr = yield from agent.content(self.offset, end - self.offset)
                if stderr:
                    raise routine_failure(stderr, where=self._path, platform=link.capabilities.platform)
                ended = not data
                yield from self._deliver(bytearray(data))
        yield from execute(agent, link.capabilities, AGENT_CLOSE, self._path, AGENT_SECONDS)

    def _in_parts(self, code: str, kept: Kept) -> Conversation[None]:
        """Have the board send a part with each command, so that its program goes on in between."""
        capabilities = self._link.capabilities
        yield from execute(self._link.repl, capabilities, code + kept.keep, self._path, STALL_SECONDS)
        size = self._link.statement_bytes
        while self._remaining:
            count = PART_BLOCKS * size if self._remaining < 0 else min(PART_BLOCKS * size, self._remaining)
            end = self.offset + count
            call = kept.load + CALL.format(offset=self.offset, count=count)
            yield from self._link.repl.submit(call.encode())
            yield from self._take(size)
            if self.offset < end:
                break
        yield from execute(self._link.repl, capabilities, kept.drop, self._path, STALL_SECONDS)

    def _take(self, size: int) -> Conversation[None]:
        """Receive and deliver the blocks that the board sends, of at most `size` bytes, up to an empty one."""
        link, repl = self._link, self._link.repl
        check, ended = 0, False
        checked = bytearray()
        while (mark := (yield from repl.inbox.exactly(1, STALL_SECONDS))[0]) != END:
            if self.method == "binary":
                data, check = yield from _binary_block(link, mark, self._path, check)
            else:
                data, check = yield from _text_block(link, mark, self._path, check)
            ended = not data
            checked += data
            # On a fast line many blocks are in the inbox already: fewer, larger pieces cost less further on.
            if len(checked) >= PIECE_BYTES or len(repl.inbox) <= size + HEADER.size:
                yield from self._deliver(checked)
        yield from self._deliver(checked)
        stderr = yield from repl.traceback(STALL_SECONDS)
        if stderr:
            raise routine_failure(stderr, where=self._path, platform=link.capabilities.platform)
        if not ended:
            raise _damaged_error(self._path)

    def _deliver(self, checked: bytearray) -> Conversation[None]:
        if not checked:
            return
        piece = bytes(checked)
        checked.clear()
        self.offset += len(piece)
        self._remaining -= len(piece) if self._remaining > 0 else 0
        yield Deliver(piece)


def agent_block_bytes(link: BoardLink) -> int:
    """Return how many bytes the agent sends at once: as many as the line carries in `AGENT_BLOCK_SECONDS`."""
    most = min(MOST_AGENT_BLOCK, link.capabilities.block_bytes)
    if link.pace is None:
        return most
    return max(min(int(link.pace * AGENT_BLOCK_SECONDS), most), LEAST_AGENT_BLOCK)


def _binary_block(link: BoardLink, mark: int, path: str, before: int) -> Conversation[tuple[bytes, int]]:
    """Read the rest of a binary block, whose first byte is `mark`. Return its content and its check.

    The check must continue `before`, the check of the previous block; otherwise raise `ProtocolError`.
    """
    inbox = link.repl.inbox
    within = STALL_SECONDS if link.pace is None else link.answer_timeout(link.block, True)
    mark, length, check = HEADER.unpack(bytes([mark]) + (yield from inbox.exactly(HEADER.size - 1, within)))
    if mark != MARK:
        inbox.put_back(bytes([mark]))
        raise _damaged_error(path)
    data = yield from inbox.exactly(length, within)
    if binascii.crc32(data, before) != check:
        raise _damaged_error(path)
    return data, check


def _text_block(link: BoardLink, mark: int, path: str, before: int) -> Conversation[tuple[bytes, int]]:
    """As `_binary_block`, for a block in the text form, which is one line."""
    line = bytes([mark]) + (yield from link.repl.inbox.until(b"\n", STALL_SECONDS, LINE_LIMIT))
    try:
        number, form, text = line.decode("utf-8", "replace").strip().split(" ", 2)
        data, check = answers.literal(text), int(number)
        if form == "b":
            data = binascii.a2b_base64(data)
        if link.capabilities.has("binascii.crc32"):
            intact = isinstance(data, bytes) and binascii.crc32(data, before) == check
        else:
            intact = isinstance(data, bytes) and (before * 7 + sum(data)) & 0xFFFFFF == check
    except (ValueError, TypeError):
        intact = False
    if not intact:
        raise _damaged_error(path)
    return bytes(data), check


def _damaged_error(path: str) -> ProtocolError:
    return ProtocolError(
        "a block of the file was changed or lost on the line, or the board printed something in between",
        where=path,
        hint="Read it again; if it happens often, use a lower speed or a better cable",
    )
