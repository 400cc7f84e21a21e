"""What is said between a host and a board in transfers of any kind."""

from __future__ import annotations

from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.resident import NAME
from fastflight.own_code import ECHO, wrap
from fastflight.protocol import Send
from tests.support.memory import Answer, Entry

# The board's answer when its routines are gone.
GONE = f"\x04Traceback\r\nImportError: no module named '{NAME}'\r\n\x04>".encode()


def pasted(code: str | bytes) -> list[Entry]:
    """Code, wrapped and sealed where it is a text."""
    if isinstance(code, str):
        code = wrap(code.encode(), sealed=True)
    return [Send(b"\x05A\x01"), Answer(b"R\x01\x00\x20"), Send(code + b"\x04"), Answer(b"\x04")]


def recovered(link: BoardLink, number: int = 1) -> list[Entry]:
    token = f"{number:03x}-{id(link.repl) & 0xFFFFFF:06x}"
    return [
        Send(b"\x03\x03\x01"),
        Answer(b"\x04Traceback\r\nKeyboardInterrupt: \r\n\x04>raw REPL; CTRL-B to exit\r\n>"),
        Send(f"{ECHO.format(token=token)}\x04".encode()),
        Answer(f"OK{token}\x04\x04>".encode()),
    ]
