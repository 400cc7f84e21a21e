"""In what form bytes go over the line, each way: what the caller asks for, or the best that the board can do."""

from __future__ import annotations

from fastflight.device.capabilities import TINY_HEAP
from fastflight.device.link import Link
from fastflight.device.transfer import Transfer
from fastflight.errors import RequestError


def up(link: Link, transfer: Transfer, where: str) -> str:
    """`binary`, `base64` or `literal`, for content. `RequestError` if the board cannot take what was asked for."""
    known = link.capabilities
    # Firmware without raw paste is too old to know its ring by its name. Nothing interrupts code in the WebAssembly
    # port: a host that goes away in mid-block would lose the machine.
    able = known.has("stdin.buffer", "stdout.buffer", "binascii.crc32", "os.stat") and bool(link.repl.paste)
    able = able and known.platform != "webassembly" and not 0 < known.free_memory < TINY_HEAP
    # One that had no memory for the routine once is not asked again, unless by name.
    return _chosen(link, transfer, able and (transfer.method == "binary" or not link.cramped), "take", where)


def down(link: Link, transfer: Transfer, where: str) -> str:
    """As `up`, for what is read."""
    able = link.capabilities.has("stdout.buffer", "binascii.crc32", "struct.pack_into")
    return _chosen(link, transfer, able, "send", where)


def _chosen(link: Link, transfer: Transfer, binary: bool, verb: str, where: str) -> str:
    base64 = link.capabilities.has("binascii.a2b_base64")
    if transfer.method == "auto":
        return "binary" if binary else "base64" if base64 else "literal"
    if (transfer.method == "binary" and not binary) or (transfer.method == "base64" and not base64):
        raise RequestError(
            f"the board does not {verb} files as {transfer.method}",
            where=where,
            hint="Leave the method to what it can",
        )
    return transfer.method
