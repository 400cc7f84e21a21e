"""The state of one open line and its board, from which transfers choose how to move their bytes.

`OpenBoard` creates a `BoardLink` after it has probed the board. Every transfer takes its method, block size, window and
time limits from it, and reports losses to it. The window is how many bytes may be unanswered on their way to the board:
as many as its receive ring holds. Each loss halves the window and the block size; they grow again only when the line is
opened again.
"""

from __future__ import annotations

from fastflight.device.capabilities import TINY_HEAP, Capabilities
from fastflight.device.transfer.resident import Resident
from fastflight.device.transfer.types import Transfer
from fastflight.errors import ProtocolError, RequestError
from fastflight.protocol import RawRepl
from fastflight.protocol.agent import AgentRepl

# Sizes of boards' receive rings, in bytes. On some boards a ring holds one byte less than its size.
RINGS = {"esp32": 260, "esp8266": 256, "samd": 128, "nrf": 64}
USUAL_RING = 512
RING_MARGIN = 4
# Lower limits: the micro:bit's ring holds 63 bytes, and none is smaller.
LEAST_WINDOW = 60
LEAST_BLOCK = 128

# Erasing a flash sector takes a few hundred milliseconds; wear levelling and an SD card's housekeeping take several.
STORAGE_SECONDS = 3.0
# Enough for a garbage collection on a large heap. Nothing else delays a board that only reads.
READING_SECONDS = 1.0
# A line of unknown speed may be a network connection, with retransmissions of its own.
NETWORK_SECONDS = 5.0

# By default blocks are not deflated on lines that are known to be this fast: 1 Mbaud, at ten bits a byte. Such a line
# may carry the bytes sooner than a board inflates them. Behind a network connection of unknown speed is a slower line,
# or a fast computer.
DEFLATED_BELOW_BYTES_PER_SECOND = 100_000


# The longest part of a command for a program that goes on: what it stands still for.
SHORT_BLOCK = 512


def receive_window(platform: str) -> int:
    """Return how many bytes the receive ring of a board holds."""
    return RINGS.get(platform, USUAL_RING) - RING_MARGIN


class BoardLink:
    """The state of one open line. `pace` is its speed in bytes per second, None if not known."""

    def __init__(self, repl: RawRepl, capabilities: Capabilities) -> None:
        self.repl = repl
        self.capabilities = capabilities
        self.resident = Resident(repl, capabilities)
        self.pace: float | None = None
        self.window = receive_window(capabilities.platform)
        self.block = capabilities.block_bytes
        # The agent of the board, if its program runs one.
        self.agent = repl if isinstance(repl, AgentRepl) else None
        # A program goes on beside requests: whatever stops it must be short.
        self.is_beside = repl.beside != "none"
        # How many bytes of a file one statement holds.
        self.statement_bytes = (
            min(capabilities.block_bytes, SHORT_BLOCK) if self.is_beside else capabilities.block_bytes
        )
        # The board ran out of memory when it was to install or run the routine that receives files.
        self.lacks_upload_memory = False
        # How often bytes were lost or changed on the line and sent again.
        self.retries = 0

    def report_loss(self) -> None:
        """Record that bytes were lost or changed on the line, and send less at once from now on."""
        self.retries += 1
        self.window = max(LEAST_WINDOW, self.window // 2)
        self.block = max(LEAST_BLOCK, self.block // 2)

    def answer_timeout(self, count: int, storing: bool) -> float:
        """Return the seconds to wait for the board's answer to `count` bytes. `storing`: it writes them to storage."""
        if self.pace is None:
            return NETWORK_SECONDS
        return (STORAGE_SECONDS if storing else READING_SECONDS) + 2 * count / self.pace

    @staticmethod
    def was_reset(where: str) -> ProtocolError:
        """Return the error for a board that was reset in the middle of a transfer."""
        return ProtocolError(
            "the board was reset during the operation",
            where=where,
            hint="Check its power supply and what its program does",
        )

    def deflates(self, requested: bool | None) -> bool:
        """Return whether to send deflated blocks. `requested` is `Transfer.deflate`."""
        if not self.capabilities.has("deflate.DeflateIO"):
            return False
        if requested is not None:
            return requested
        return self.pace is None or self.pace < DEFLATED_BELOW_BYTES_PER_SECOND

    def upload_method(self, transfer: Transfer, where: str) -> str:
        """Return the method for an upload: `binary`, `base64` or `literal`.

        `RequestError` if `transfer` asks for a method that the board does not support.
        """
        board = self.capabilities
        # Firmware without raw paste is too old for `RINGS`. Nothing interrupts code in the WebAssembly port: it would
        # wait for ever for the rest of a block whose host has gone.
        binary = board.has("stdin.buffer", "stdout.buffer", "binascii.crc32", "os.stat") and bool(self.repl.paste)
        binary = binary and board.platform != "webassembly" and not 0 < board.free_memory < TINY_HEAP
        # A board that once ran out of memory for the routine gets it again only if the caller insists on binary.
        binary = binary and (transfer.method == "binary" or not self.lacks_upload_memory)
        return self._method(transfer, binary, "take", where)

    def download_method(self, transfer: Transfer, where: str) -> str:
        """As `upload_method`, for a download."""
        binary = self.capabilities.has("stdout.buffer", "binascii.crc32", "struct.pack_into") and not self.is_beside
        return self._method(transfer, binary, "send", where)

    def _method(self, transfer: Transfer, binary: bool, verb: str, where: str) -> str:
        base64 = self.capabilities.has("binascii.a2b_base64")
        if transfer.method == "auto":
            return "binary" if binary else "base64" if base64 else "literal"
        if (transfer.method == "binary" and not binary) or (transfer.method == "base64" and not base64):
            raise RequestError(
                f"the board does not {verb} files as {transfer.method}",
                where=where,
                hint="Use the method auto",
            )
        return transfer.method
