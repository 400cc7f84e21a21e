r"""A folder of the host that a board mounts: both sides of the conversation, without I/O.

Board code that opens a file in the mounted folder sends a question in its output, and waits for the answer in its
input. A question is an escape sequence that terminals ignore (APC): `ESC _ ff`, eight digits of a crc32, the question,
`ESC \`. The question is the text of a tuple: its kind and its arguments.

- `('s', path)`: the state of a path. The answer is its type, size and time.
- `('l', path, n)`: entries of a folder from the n-th on, as many as fit; none after the last one.
- `('r', path, offset)`: a piece of a file. The size in the answer's head is that of the file. (The reader of modules
  takes a read that is not full for the end, so `readinto` fills its buffer from several pieces.)
- `('b',)`, `('e', ok)`: the folder is mounted; it is no longer, and whether the user's code went well.

A bare letter in place of all that: `a`, the board has taken a step of the answer; `z`, nothing was mounted any more.

An answer has a head of 22 characters: its kind (`P` plain, `D` deflated, `E` the number of an OSError, `X` the question
was damaged), and in hexadecimal digits the length of the body (4), a crc32 of the content (8), a size (8); then `|`.
The body has no control characters that a prompt acts on: they are escaped. It comes in steps, of which two at a time
fit into the receive buffer of the board: the third is sent when the board has taken the first. So the line does not
wait. The board asks again, twice, if an answer is damaged or stays out.
"""

from __future__ import annotations

import ast
import binascii
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

START, END = b"\x1b_ff", b"\x1b\\"
# A path that a board can hold is shorter. What looks like a longer question is output.
MAX_QUESTION_BYTES = 1024
HEAD = "%s%04x%08x%08x|"
# What a board's prompt would act on: if the user stops the program, the rest of an answer is typed there.
ESCAPE = 0x10
ESCAPED = bytes((ESCAPE, *b"\x01\x02\x03\x04\x05\n\r"))
# Two steps are less than the receive buffer of a board, which on samd has 128 bytes and elsewhere at least 256.
STEP, SMALL_STEP = 120, 56
SMALL_BUFFERS = ("samd",)
# Bytes of a file in one answer, and the window of the board's inflate as a power of two, by the free memory. The board
# holds the answer twice.
PIECES = ((100_000, 4096, 12), (50_000, 2048, 11), (20_000, 1024, 10))
SMALL_PIECE = (512, 10)
# Errors of the board's file functions.
ENOENT, EISDIR = 2, 21

# Defines the global `_ffmount`: `start()` mounts and goes there, `stop()` undoes that, `run()` does both with the
# user's `code` between.
BOARD = r"""
def _ffmount(piece,step,window):
 import os,sys,io,binascii
 poll=None
 try:
  import select
  poll=select.poll()
  poll.register(sys.stdin,1)
 except Exception:
  pass
 write=sys.stdout.buffer.write
 take=sys.stdin.buffer.readinto
 room=memoryview(bytearray(22+piece*5//4))
 def tell(*a):
  q=repr(a).encode()
  write(('\x1b_ff%08x'%(binascii.crc32(q)&0xffffffff)).encode()+q+b'\x1b\\')
 def fill(m):
  if poll and not poll.poll(5000):
   raise ValueError
  take(m)
 def ask(*a):
  for i in range(3):
   tell(*a)
   try:
    fill(room[:22])
    h=str(bytes(room[:22]),'ascii')
    k,n,c,z=h[0],int(h[1:5],16),int(h[5:13],16),int(h[13:21],16)
    i=0
    while i<n:
     j=min(n,i+step)
     fill(room[i:j])
     i=j
     if i<n:
      write(b'\x1b_ffa\x1b\\')
    x=bytes(room[:n])
    for e in b'\x01\x02\x03\x04\x05\n\r\x10':
     x=x.replace(bytes((16,e+64)),bytes((e,)))
    if k=='D':
     import deflate
     x=deflate.DeflateIO(io.BytesIO(x),deflate.RAW,window).read()
    if k!='X' and binascii.crc32(x)&0xffffffff==c:
     break
   except ValueError:
    pass
   while poll and poll.poll(200):
    take(room[:1])
  else:
   raise OSError(5)
  if k=='E':
   raise OSError(int(x))
  return x,z
 class File(io.IOBase):
  def __init__(s,p,text):
   s.p=p
   s.t=text
   s.o=s.a=0
   s.d,s.z=ask('r',p,0)
  def __enter__(s):
   return s
  def __exit__(s,*e):
   pass
  def close(s):
   pass
  def flush(s):
   pass
  def tell(s):
   return s.o
  def seek(s,o,w=0):
   s.o=max(0,o+(0,s.o,s.z)[w])
   return s.o
  def ioctl(s,r,a):
   return 249 if r==11 else 0 if r==4 else -1
  def more(s):
   i=s.o-s.a
   if not 0<=i<len(s.d):
    if s.o>=s.z:
     return b''
    s.d,s.z=ask('r',s.p,s.o)
    s.a=s.o
    i=0
   return memoryview(s.d)[i:]
  def readinto(s,b):
   i=0
   while i<len(b):
    m=s.more()
    n=min(len(b)-i,len(m))
    if not n:
     break
    b[i:i+n]=m[:n]
    i+=n
    s.o+=n
   return i
  def get(s,n,line=0):
   r=b''
   while n<0 or len(r)<n:
    m=bytes(s.more())
    if n>=0:
     m=m[:n-len(r)]
    if line and b'\n' in m:
     m=m[:m.find(b'\n')+1]
     n=0
    if not m:
     break
    r+=m
    s.o+=len(m)
   return str(r,'utf-8') if s.t else r
  def read(s,n=-1):
   return s.get(-1 if n is None else n)
  def readline(s,n=-1):
   return s.get(n,1)
  def readlines(s):
   return list(s)
  def __iter__(s):
   return s
  def __next__(s):
   l=s.readline()
   if not l:
    raise StopIteration
   return l
 class Folder:
  p='/'
  def mount(s,*a):
   pass
  def umount(s):
   pass
  def j(s,p):
   return p if p[:1]=='/' else s.p+p
  def chdir(s,p):
   p=s.j(p)
   if p!='/' and not s.stat(p)[0]&16384:
    raise OSError(20)
   s.p=p if p[-1]=='/' else p+'/'
  def getcwd(s):
   return s.p
  def stat(s,p):
   k,z,t=eval(ask('s',s.j(p))[0])
   return (k,0,0,0,0,0,z,t,t,t)
  def statvfs(s,p):
   return (4096,4096,0,0,0,0,0,0,1,255)
  def ilistdir(s,p):
   n=0
   while 1:
    l=eval(ask('l',s.j(p),n)[0])
    if not l:
     break
    n+=len(l)
    for e in l:
     yield e
  def open(s,p,m):
   if set(m)&set('wa+x'):
    raise OSError(30)
   return File(s.j(p),'b' not in m)
  def remove(s,*a):
   raise OSError(30)
  mkdir=rmdir=rename=remove
 class It:
  code=None
  def start(s):
   os.mount(Folder(),'/remote')
   os.chdir('/remote')
   tell('b')
  def stop(s,ok=1):
   os.chdir('/')
   os.umount('/remote')
   tell('e',ok)
  def run(s):
   s.start()
   ok=0
   try:
    exec(s.code,globals())
    ok=1
   except BaseException as e:
    sys.print_exception(e)
   s.stop(ok)
 return It()
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of a file goes into an answer, the size of a step, and the window of deflate as a power of two."""

    piece: int
    step: int
    window: int


def sizes_for(free_memory: int, platform: str) -> Sizes:
    """Return the sizes for a board with this much free memory and this `sys.platform`."""
    piece, window = next((sizes for least, *sizes in PIECES if free_memory >= least), SMALL_PIECE)
    return Sizes(piece, SMALL_STEP if platform.startswith(SMALL_BUFFERS) else STEP, window)


def install_code(sizes: Sizes, code: str) -> str:
    """Return code that prepares a board. It mounts nothing yet, because nobody answers its questions yet."""
    made = f"_ffmount=_ffmount({sizes.piece},{sizes.step},{sizes.window})"
    return f"{BOARD}\n{made}\n_ffmount.code={code!r}\n"


# What is typed at the board's prompt: to begin, and to end even if the program runs or a reset has removed everything.
START_LINE = b"_ffmount.start()\r"
RUN_LINE = b"_ffmount.run()\r"
STOP_LINE = rb"""exec("try:\n _ffmount.stop()\nexcept Exception:\n print('\x1b_ffz\x1b\\')\n_ffmount=None")""" + b"\r"
# Ends input that is not complete, and the program that runs.
CTRL_C = b"\r\x03\x03"


@dataclass(frozen=True, slots=True)
class State:
    """What a path is: a folder or a file, its size in bytes, its time in seconds since 1970."""

    is_folder: bool
    size: int
    modified: int

    @property
    def mode(self) -> int:
        return 0x4000 if self.is_folder else 0x8000


class MountAnswers:
    """The host's side, for one board. `read_file`, `state` and `entries` read the folder, and may raise `OSError`.

    `read_file(path, offset, count)` returns the bytes and the size of the file. Paths begin with a slash.
    """

    def __init__(
        self,
        read_file: Callable[[str, int, int], tuple[bytes, int]],
        state: Callable[[str], State],
        entries: Callable[[str], list[tuple[str, State]]],
        *,
        sizes: Sizes,
        deflate: bool,
    ) -> None:
        """`deflate`: the board can inflate."""
        self._read_file = read_file
        self._state = state
        self._entries = entries
        self._piece, self._step, self._window = sizes.piece, sizes.step, sizes.window
        self._deflate = deflate
        # The end of what was received, if it may be the beginning of a question.
        self._held = b""
        # The steps of the answer that are not sent yet.
        self._steps: deque[bytes] = deque()
        # How many questions about files were answered.
        self.questions = 0
        # Whether the folder is mounted. Output before and after that is not shown.
        self._mounted = False
        # None until the folder is no longer mounted, then whether the user's code went well.
        self.ended: bool | None = None

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Process output of the board. Yield pairs: what to show, and what to send to the board after it."""
        for output, question in self._split(data):
            shown = output if self._mounted else b""
            yield shown, b"" if question is None else self._reply(question)

    def _split(self, data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield pairs: output, and the question after it or None."""
        data = self._held + data
        self._held = b""
        while data:
            before, mark, rest = data.partition(START)
            if not mark:
                keep = next((n for n in range(len(START) - 1, 0, -1) if data.endswith(START[:n])), 0)
                self._held = data[len(data) - keep :]
                yield data[: len(data) - keep], None
                return
            question, end, after = rest.partition(END)
            if not end and len(rest) <= MAX_QUESTION_BYTES:
                self._held = mark + rest
                yield before, None
                return
            if not end or len(question) > MAX_QUESTION_BYTES:
                yield before + mark, None
                data = rest
                continue
            yield before, question
            data = after

    def _end(self, ok: bool) -> None:
        self._mounted = False
        if self.ended is None:
            self.ended = ok

    def _reply(self, question: bytes) -> bytes:
        if question == b"a":
            return self._next_step()
        if question == b"z":
            self._end(False)
            return b""
        try:
            kind, *arguments = ast.literal_eval(question[8:].decode())
            if binascii.crc32(question[8:]) != int(question[:8], 16):
                raise ValueError("damaged")
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return self._send("X", b"", 0)
        if kind == "b":
            self._mounted = True
            return b""
        if kind == "e":
            self._end(bool(arguments and arguments[0]))
            return b""
        self.questions += 1
        try:
            content, size = self._content(kind, arguments)
        except OSError as error:
            return self._send("E", str(EISDIR if error.errno == EISDIR else ENOENT).encode(), 0)
        except (ValueError, TypeError, IndexError):
            return self._send("X", b"", 0)
        if self._deflate and len(packed := _deflated(content, self._window)) < len(content):
            return self._send("D", content, size, packed)
        while len(_escaped(content)) > self._piece * 5 // 4:
            content = content[: len(content) // 2]  # the board asks for the rest
        return self._send("P", content, size)

    def _content(self, kind: str, arguments: list[Any]) -> tuple[bytes, int]:
        path = str(arguments[0])
        if kind == "s":
            state = self._state(path)
            return repr((state.mode, state.size, state.modified)).encode(), 0
        if kind == "r":
            return self._read_file(path, int(arguments[1]), self._piece)
        if kind != "l":
            raise ValueError("no such question")
        lot: list[tuple[str, int, int, int]] = []
        for name, state in self._entries(path)[int(arguments[1]) :]:
            longer = [*lot, (name, state.mode, 0, state.size)]
            if len(repr(longer).encode()) > self._piece:
                break
            lot = longer
        return repr(lot).encode(), 0

    def _send(self, kind: str, content: bytes, size: int, packed: bytes | None = None) -> bytes:
        """Return the head and the first two steps of an answer, and keep the others."""
        body = content if packed is None else packed
        body = _escaped(body)
        head = (HEAD % (kind, len(body), binascii.crc32(content), size)).encode()
        self._steps = deque(body[start : start + self._step] for start in range(0, len(body), self._step))
        return head + self._next_step() + self._next_step()

    def _next_step(self) -> bytes:
        return self._steps.popleft() if self._steps else b""


def _escaped(content: bytes) -> bytes:
    for byte in ESCAPED:
        content = content.replace(bytes((byte,)), bytes((ESCAPE, byte + 64)))
    return content


def _deflated(content: bytes, window: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -window)
    return packer.compress(content) + packer.flush()
