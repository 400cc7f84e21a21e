"""What MicroPython's unix port does on its terminal, played by Python: the process that a bridge has as a device.

    python unix_child.py [--die-at-start CODE] [--marker FILE]

It prints banner and prompt, has the friendly REPL, the raw REPL and raw paste, runs what it is sent as Python, and ends
where the unix port ends: at ^D on an empty line and at `SystemExit`. It reads ^C as a byte at its prompts, from a
terminal that it has set for that; while it runs code it puts the terminal back and catches SIGINT. With `--marker` it
dies at once, with code 7, as soon as that file is there.
"""

import contextlib
import io
import os
import signal
import sys
import termios
import traceback

BANNER = b'MicroPython v1.27.0 on 2025-12-01; linux [Python] version\r\nType "help()" for more information.\r\n'
WINDOW = 32
CTRL_A, CTRL_B, CTRL_C, CTRL_D, CTRL_E = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
NAMES: dict[str, object] = {"__name__": "__main__"}
# The terminal's local flags, as it found them and at its prompts.
as_found, at_prompt = termios.tcgetattr(0)[3], 0


class Output(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data) -> int:  # type: ignore[no-untyped-def, override]
        say(bytes(data))
        return len(data)


def say(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def key() -> bytes:
    data = os.read(0, 1)
    if not data:
        sys.exit()
    return data


def run(code: bytes, *, raw: bool) -> None:
    error = b""
    leaving: SystemExit | None = None
    try:
        set_terminal(as_found)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.redirect_stdout(io.TextIOWrapper(Output(), write_through=True, newline="")):
            exec(code, NAMES)
    except SystemExit as asked:
        leaving = asked
    except BaseException:
        error = traceback.format_exc(0).encode()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    set_terminal(at_prompt)
    say(b"\x04" * raw + error + b"\x04" * raw)
    if leaving is not None:
        raise leaving


def set_terminal(flags: int) -> None:
    attributes = termios.tcgetattr(0)
    attributes[3] = flags
    termios.tcsetattr(0, termios.TCSANOW, attributes)


def friendly() -> bool:
    """Until the raw REPL is asked for (true) or the process is to end."""
    say(BANNER)
    while True:
        say(b">>> ")
        line = b""
        while True:
            char = key()
            if char == CTRL_A and not line:
                say(b"\r\n")
                return True
            if char == CTRL_D and not line:
                say(b"\r\n")
                return False
            if char == CTRL_C or char == b"\r":
                say(b"\r\n")
                line = b"" if char == CTRL_C else line
                break
            if char == CTRL_B and not line:
                say(b"\r\n" + BANNER)
                break
            line += char
            say(char)
        if line:
            run(line, raw=False)


def raw() -> bool:
    """Until the friendly REPL is asked for (true) or the process is to end."""
    say(b"raw REPL; CTRL-B to exit\r\n")
    while True:
        say(b">")
        code = b""
        while (char := key()) not in (CTRL_A, CTRL_B, CTRL_D):
            code = b"" if char == CTRL_C else code + char
        if char == CTRL_B:
            say(b"\r\n")
            return True
        if char == CTRL_A and code == b"\x05A":
            raw_paste()
        elif char == CTRL_A:
            say(b"raw REPL; CTRL-B to exit\r\n")
        else:
            say(b"OK")
            if not code:
                say(b"\r\n")
                return False
            run(code, raw=True)


def raw_paste() -> None:
    say(b"R\x01" + WINDOW.to_bytes(2, "little") + b"\x01")
    code = b""
    while (char := key()) != CTRL_D:
        code += char
        if len(code) % WINDOW == 0:
            say(b"\x01")
    say(b"\x04")
    run(code, raw=True)


def main(arguments: list[str]) -> None:
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if "--die-at-start" in options:
        os._exit(int(options["--die-at-start"]))
    if os.path.exists(options.get("--marker", "")):
        os._exit(7)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    set_terminal(at_prompt)
    while friendly() and raw():
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
