r"""The board's `aiorepl`: the dialogue of micropython-lib's module of that name, for tests of hosts.

`SOURCE` runs on MicroPython as well. It answers as the original does, as far as hosts use it: the announcement, the
prompt, Ctrl-A to Ctrl-D, and the raw mode with raw paste, in which a Ctrl-C ends the program. Its prompt runs single
lines, without history, editing or `await`.
"""

from __future__ import annotations

SOURCE = r"""
import asyncio
import micropython
import sys

put = sys.stdout.write


def attempt(code, g):
    try:
        micropython.kbd_intr(3)
        try:
            return eval(code, g)
        except SyntaxError:
            return exec(code, g)
    except Exception as error:
        print("{}: {}".format(type(error).__name__, error))
    finally:
        micropython.kbd_intr(-1)


async def task(g=None, prompt="--> "):
    print("Starting asyncio REPL...")
    if g is None:
        g = __import__("__main__").__dict__
    stream = asyncio.StreamReader(sys.stdin)
    try:
        micropython.kbd_intr(-1)
        while True:
            put(prompt)
            line = ""
            while True:
                char = await stream.read(1)
                if char == "\n":
                    put("\n")
                    result = attempt(line, g) if line else None
                    if result is not None:
                        print(repr(result))
                    break
                if char == "\x01":
                    await raw_mode(stream, g)
                    break
                if char == "\x03":
                    put("\n")
                    break
                if char == "\x04":
                    put("\n")
                    asyncio.new_event_loop()
                    return
                if " " <= char <= "~":
                    put(char)
                    line += char
    finally:
        micropython.kbd_intr(3)


async def raw_mode(stream, g):
    banner = "raw REPL; CTRL-B to exit\n"
    put(banner)
    while True:
        put(">")
        code = ""
        while True:
            char = await stream.read(1)
            if char == "\x01":
                if code == "\x05A":
                    code = await raw_paste(stream)
                    break
                code = ""
                put(banner + ">")
            elif char == "\x02":
                put("\n")
                return
            elif char == "\x03":
                code = ""
            elif char == "\x04":
                put("OK")
                break
            else:
                code += char
        if not code:
            put("Ignored: soft reboot\n" + banner)
        try:
            exec(code, g)
            put("\x04")
        except Exception as error:
            print(code)
            put("\x04")
            sys.print_exception(error, sys.stdout)
        put("\x04")


async def raw_paste(stream, window=512):
    put("R\x01\x00\x02\x01")
    code = ""
    while True:
        for _ in range(window):
            char = await stream.read(1)
            if char in "\x03\x04":
                put("\x04")
                if char == "\x03":
                    raise KeyboardInterrupt
                return code
            code += char
        put("\x01")
"""
