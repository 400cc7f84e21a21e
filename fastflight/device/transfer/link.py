"""What is known of one open line and its board, and how transfers therefore move their bytes.

`OpenBoard` makes a `BoardLink` when it has learnt what the board can do; every transfer asks it for the form of the
bytes, the block size, the window and time limits, and reports losses to it. The window is how many bytes may be on
their way to the board without an answer: what the board's receive ring holds. After a loss both window and blocks are
halved, for as long as the line is open.
"""

from __future__ import annotations

from fastflight.device.capabilities import TINY_HEAP, Capabilities
from fastflight.device.transfer.resident import Resident
from fastflight.device.transfer.types import Transfer
from fastflight.errors import ProtocolError, RequestError
from fastflight.protocol import RawRepl

# Receive rings of boards, in bytes; a ring holds one less than its size on some.
RINGS = {"esp32": 260, "esp8266": 256, "samd": 128, "nrf": 64}
USUAL_RING = 512
RING_MARGIN = 4
# The least that a line is sent at once: the micro:bit's ring holds 63 bytes, and none is smaller.
LEAST_WINDOW = 60
LEAST_BLOCK = 128

# Erasing flash sectors takes a few hundred milliseconds, wear levelling and a card's housekeeping a few of them.
STORAGE_SECONDS = 3.0
# A garbage collection on a large heap. Nothing else holds up a board that only has to read.
READING_SECONDS = 1.0
# A line whose pace is not known may be a network with its own retransmissions.
NETWORK_SECONDS = 5.0

# Unless a request says otherwise, blocks are deflated only on lines that are known to carry less: 1 Mbaud, at ten bits
# a byte. A faster line may carry them sooner than a board packs or unpacks them.
DEFLATED_BELOW_BYTES_PER_SECOND = 100_000


class BoardLink:
    """One open line. `pace` is its bytes per second, None where that is not known."""

    def __init__(self, repl: RawRepl, capabilities: Capabilities) -> None:
        self.repl = repl
        self.capabilities = capabilities
        self.resident = Resident(repl, capabilities)
        self.pace: float | None = None
        self.window = RINGS.get(capabilities.platform, USUAL_RING) - RING_MARGIN
        self.block = capabilities.block_bytes
        # The board had no memory for the routine that receives files.
        self.cramped = False
        # How often something was lost on the line and sent again.
        self.retries = 0

    def lost(self) -> None:
        """Report that something was lost or changed on the line: less is sent at once from now on."""
        self.retries += 1
        self.window = max(LEAST_WINDOW, self.window // 2)
        self.block = max(LEAST_BLOCK, self.block // 2)

    def patience(self, count: int, storing: bool) -> float:
        """Seconds within which the board answers `count` bytes, which it also writes to its storage if `storing`."""
        if self.pace is None:
            return NETWORK_SECONDS
        return (STORAGE_SECONDS if storing else READING_SECONDS) + 2 * count / self.pace

    @staticmethod
    def was_reset(where: str) -> ProtocolError:
        """The error for a board that was reset in the middle of a transfer."""
        return ProtocolError(
            "the board was reset in the middle of it",
            where=where,
            hint="Check its power supply and what its program does",
        )

    def inflates(self, requested: bool | None) -> bool:
        """Whether to send deflated blocks; `requested` is a request's `deflate`."""
        return self.capabilities.has("deflate.DeflateIO") and self._deflates(requested)

    def deflates(self, requested: bool | None) -> bool:
        """Whether to have the board send deflated blocks. Most firmware can only inflate: it has no `write` there."""
        return self.capabilities.has("deflate.DeflateIO.write") and self._deflates(requested)

    def _deflates(self, requested: bool | None) -> bool:
        if requested is not None:
            return requested
        return self.pace is not None and self.pace < DEFLATED_BELOW_BYTES_PER_SECOND

    def upload_method(self, transfer: Transfer, where: str) -> str:
        """`binary`, `base64` or `literal`, for content that is sent. `RequestError` if the board cannot take it so."""
        known = self.capabilities
        # Firmware without raw paste is too old for `RINGS`. Nothing interrupts code in the WebAssembly port: it would
        # wait for ever for the rest of a block whose host has gone.
        able = known.has("stdin.buffer", "stdout.buffer", "binascii.crc32", "os.stat") and bool(self.repl.paste)
        able = able and known.platform != "webassembly" and not 0 < known.free_memory < TINY_HEAP
        # A board that once had no memory for the routine gets it again only on request.
        return self._method(transfer, able and (transfer.method == "binary" or not self.cramped), "take", where)

    def download_method(self, transfer: Transfer, where: str) -> str:
        """As `upload_method`, for content that is read."""
        able = self.capabilities.has("stdout.buffer", "binascii.crc32", "struct.pack_into")
        return self._method(transfer, able, "send", where)

    def _method(self, transfer: Transfer, binary: bool, verb: str, where: str) -> str:
        base64 = self.capabilities.has("binascii.a2b_base64")
        if transfer.method == "auto":
            return "binary" if binary else "base64" if base64 else "literal"
        if (transfer.method == "binary" and not binary) or (transfer.method == "base64" and not base64):
            raise RequestError(
                f"the board does not {verb} files as {transfer.method}",
                where=where,
                hint="Leave the method to what it can",
            )
        return transfer.method
