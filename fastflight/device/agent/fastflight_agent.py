# fastflight's agent: files and code for a host, while this board's program runs. `import fastflight_agent` starts it.
# See docs/agent.md of fastflight. A frame is 0x16, kind, number, length (2), crc32 (4), payload.
import sys, io, select, time, builtins
from binascii import crc32

f = None  # the file that the host reads or writes
pos = 0  # the position in it
left = 0  # how many bytes of it are to be sent
n = 0  # the number of the last frame
till = time.ticks_ms()  # until when the host is expected to go on
seen = 0  # whether input waited at the last turn of the timer
b = b""  # the code that has arrived so far
q = None  # the block to send, after its position
m = memoryview(bytearray(264))  # the received frame, without its mark
p = select.poll()
p.register(sys.stdin, 1)
r = sys.stdin.buffer.readinto
t = None  # the timer
on = 1  # whether it takes the input


def send(k, d=b""):
    h = bytes((k, n)) + len(d).to_bytes(2, "little")
    w = sys.stdout.buffer.write
    h = b"\x16" + h + crc32(d, crc32(h)).to_bytes(4, "little")
    if len(d) < 99:
        return w(h + d)
    w(h)
    w(d)


def end(c, e=None):
    # The end of code that has printed `c` bytes, or an error.
    s = io.StringIO()
    if e:
        sys.print_exception(e, s)
    send(101, c.to_bytes(4, "little") + s.getvalue().encode()[-1000:])


def run(c, g=None):
    # Run code. The host's own code (no `g`) has names of its own, and the `print` of the program stays as it is.
    a = [0]
    o = print

    def out(*l, **k):
        if "file" in k:
            return o(*l, **k)
        s = io.StringIO()
        o(*l, file=s, **k)
        s = s.getvalue().encode()
        a[0] += len(s)
        while s:
            send(111, s[:512])
            s = s[512:]

    e = None
    try:
        if g:
            builtins.print = out
        exec(c, g or {"print": out})
    except (Exception, KeyboardInterrupt) as x:
        e = x
    if g:
        builtins.print = o
    end(a[0], e)


def take():
    # Receive a frame after its mark, and answer it. A host that stops within it is given up.
    global b, n, q, left, pos, on
    z = 8
    i = x = 0
    while i < z:
        for _ in p.ipoll(100):
            break
        else:
            return
        r(m[263:])
        c = m[263]
        if c == 0x16:
            z = 8
            i = x = 0
        elif c == 0x10:
            x = 1
        elif 0x1C <= c <= 0x1D and not i:
            b = b""
            if c == 0x1D:
                # The host is about to stop the program: leave the input to the prompt.
                on = 0
                if t:
                    t.deinit()
            return send(104, b"1 " + sys.platform.encode())
        else:
            m[i] = c & 63 if x else c
            x = 0
            i += 1
            if i == 8:
                z += m[2]
                if m[3] or z > 263:
                    return
    d = bytes(m[8:z])
    if crc32(d, crc32(m[:4])).to_bytes(4, "little") != m[4:8]:
        return
    k = m[0]
    new = m[1] != n
    n = m[1]
    left = 0
    try:
        x = int.from_bytes(d[:4], "little")
        if k == 87:  # W: write at a position
            if x == pos:
                pos += f.write(d[4:])
            send(97, pos.to_bytes(4, "little"))
        elif k == 82:  # R: send so many bytes, in blocks of a size
            left = x
            q = memoryview(bytearray(4 + int.from_bytes(d[4:], "little")))
        else:  # C: a piece of code; X, Y: the last piece, with its own global names or those of the program
            send(97)
            if new:
                b += d
                if k > 67:
                    d = b
                    b = b""
                    run(d, None if k == 88 else __import__("__main__").__dict__)
    except Exception as e:
        end(0, e)


def turn(_=None):
    # What the agent does each time: a block, or frames for 40 ms.
    global left, till, pos, seen
    s = time.ticks_ms()
    w = 0
    if not on:
        return
    if time.ticks_diff(till, s) <= 0:
        till = s  # times are compared over six days at most
        x = seen
        seen = 0
        for _ in p.ipoll(0):
            seen = 1
        if t and not left and not (x and seen):
            # A prompt takes its input at once. What waits for a whole period is for the agent.
            return
    if left:
        try:
            q[:4] = pos.to_bytes(4, "little")
            i = f.readinto(q[4 : 4 + left])
            left = left - i if i else 0
            pos += i
            send(100, q[: i + 4])
        except Exception as e:
            left = 0
            end(0, e)
        till = time.ticks_add(s, 500)
    while on and time.ticks_diff(time.ticks_ms(), s) < 40:
        for _ in p.ipoll(w):
            break
        else:
            return
        r(m[263:])
        c = m[263]
        if c == 0x16:
            take()
            till = time.ticks_add(s, 500)
            w = 2
        elif t and (c in b"\1\4\5\r" or 31 < c < 127) and till == s:
            # Somebody types: the program has ended, and the timer must leave the input to the prompt.
            return t.deinit()


async def task():
    # The agent as an asyncio task.
    from asyncio import sleep_ms

    if t:
        t.deinit()
    while on:
        turn()
        await sleep_ms(1 if time.ticks_diff(till, time.ticks_ms()) > 0 else 20)


try:
    from machine import Timer

    for i in (-1, 3, 0):
        try:
            t = Timer(i)
            t.init(period=5, callback=turn)
            break
        except (ValueError, OSError):
            t = None
except ImportError:
    pass
if not t:
    from asyncio import create_task

    create_task(task())
send(104, b"1 " + sys.platform.encode())
