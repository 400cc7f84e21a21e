"""Whether a board can load a compiled module, an `.mpy` file: by the first bytes of the file, and what the board says.

The format is that of MicroPython's `py/persistentcode.c`: `M`, a version, a byte with the sub-version (2 bits) and the
architecture of native code (6 bits, 0 for none), and the bits of a small integer. A board reports the same in
`sys.implementation._mpy`. The sub-version counts only for native code.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastflight.errors import DataError

# Prints what the board reports; 0 if it loads no `.mpy` files. Before MicroPython 1.19 the name was `mpy`.
ASK = "import sys\ni=sys.implementation\nprint(getattr(i,'_mpy',0) or getattr(i,'mpy',0))"
HEADER_BYTES = 4
# By the number in a file. `MP_NATIVE_ARCH_...`
ARCHITECTURES = (
    "bytecode",
    "x86",
    "x64",
    "armv6",
    "armv6m",
    "armv7m",
    "armv7em",
    "armv7emsp",
    "armv7emdp",
    "xtensa",
    "xtensawin",
    "rv32imc",
    "rv64imc",
)


@dataclass(frozen=True, slots=True)
class MpyFormat:
    """A version of the format. `architecture` is a number, 0 for byte code only."""

    version: int
    sub_version: int
    architecture: int

    @classmethod
    def of_board(cls, reported: int) -> MpyFormat | None:
        """Return the format that a board loads, from what `ASK` printed. None if it loads none."""
        return cls._of(reported & 0xFF, reported >> 8 & 0xFF) if reported else None

    @classmethod
    def of_file(cls, content: bytes, where: str) -> MpyFormat:
        """Return the format of a file. `DataError` if it is no `.mpy` file."""
        if len(content) < HEADER_BYTES or content[:1] != b"M":
            raise DataError("this is no compiled module", where=where, hint="Compile the source with mpy-cross")
        return cls._of(content[1], content[2])

    @classmethod
    def _of(cls, version: int, rest: int) -> MpyFormat:
        return cls(version, rest & 3, rest >> 2)

    def __str__(self) -> str:
        if not self.architecture:
            return f"version {self.version}"
        known = self.architecture < len(ARCHITECTURES)
        name = ARCHITECTURES[self.architecture] if known else f"architecture {self.architecture}"
        return f"version {self.version}.{self.sub_version}, {name}"


def check_mpy(path: str, content: bytes, board: MpyFormat | None) -> None:
    """Raise `DataError` if `path` is a compiled module that the board cannot load."""
    if not path.endswith(".mpy"):
        return
    file = MpyFormat.of_file(content, path)
    if board is None:
        hint = "Install its source: the .py file"
        raise DataError("this board loads no compiled modules", where=path, hint=hint)
    native = file.architecture != 0
    if (
        file.version != board.version
        or native
        and (file.sub_version, file.architecture)
        != (
            board.sub_version,
            board.architecture,
        )
    ):
        hint = "Install its source (.py), or compile it with the mpy-cross of the board's MicroPython"
        raise DataError(f"this compiled module is of {file}; the board loads {board}", where=path, hint=hint)
