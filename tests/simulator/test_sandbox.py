"""Attacks on the computer by code on a simulated board: what each reaches where Linux has Landlock.

Each attack has taken the simulator over before it begins: it has the interpreter's own modules, and no audit hook.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.client import FastFlightClient
from fastflight.simulator import landlock, syscalls
from fastflight.transport.sim import SimAddress
from fastflight.transport.socket import SocketPort
from tests.support.commands import FASTFLIGHT, run_command
from tests.support.ports import open_port
from tests.support.servers import running, serving
from tests.support.waiting import ByteReader

SECONDS = 20.0
SECRET = "a token of the server"

confined = pytest.mark.skipif(not landlock.version(), reason="this system has no Landlock")
filtered = pytest.mark.skipif(os.name == "nt" or not syscalls.is_supported(), reason="this system takes no filter")

# The simulator once refused names of attributes: a subclass of `str` that lies about itself, for a while, passed.
TAKEN_OVER = """
class Name(str):
    lies = 0
    def __hash__(self):
        self.lies -= 1
        return 0 if self.lies >= 0 else str.__hash__(self)
    def __eq__(self, other):
        return self.lies < 0 and str.__eq__(self, other)
def get(thing, name):
    for lies in (2, 0):
        name = Name(name)
        name.lies = lies
        try:
            return getattr(thing, name)
        except AttributeError:
            pass
class Everything:
    def __contains__(self, event):
        return True
def subclasses(kind):
    return get(type, "__subclasses__")(kind)
wall = [kind for kind in subclasses(object) if kind.__name__ == "Wall"][0]
host = get(get(wall, "__call__"), "__globals__")
host["HARMLESS"] = Everything()
modules = host["sys"].modules
os = modules["os"]
ctypes = modules["ctypes"]
c = ctypes.CDLL(None, use_errno=True)
load = modules["builtins"].__import__
def attempt(act):
    try:
        return act()
    except BaseException as error:
        return type(error).__name__ + " " + str(getattr(error, "errno", ""))
def call(name, *arguments):
    result = getattr(c, name)(*arguments)
    return result if result != -1 else "errno " + str(ctypes.get_errno())
"""


class AttackedBoard:
    """A simulated board that a server would open, in its raw REPL."""

    def __init__(self, port: SocketPort) -> None:
        self._port = port
        self._reader = ByteReader(lambda: port.read(SECONDS))
        port.write(b"\r\x03\x03\r\x01", SECONDS)
        self._until(b"raw REPL; CTRL-B to exit\r\n>")

    def run(self, code: str) -> list[str]:
        """The lines that a piece of code prints; it must raise nothing."""
        self._port.write(textwrap.dedent(code).encode() + b"\x04", SECONDS)
        self._until(b"OK")
        output, error = self._until(b"\x04"), self._until(b"\x04")
        self._until(b">")
        assert error == b""
        return output.decode().splitlines()

    def _until(self, mark: bytes) -> bytes:
        """Everything before the next `mark`, which is taken as well."""
        return self._reader.read_until(mark).removesuffix(mark)


@pytest.fixture(scope="module")
def board() -> Iterator[AttackedBoard]:
    """One board, which every attack has to leave alive for the next."""
    address = SimAddress("sim:", (("telemetry", "0"), ("capacity", "1000000")))
    port = open_port(address, SECONDS)
    try:
        taken = AttackedBoard(port)
        taken.run(TAKEN_OVER)
        yield taken
    finally:
        port.close()
        address.dispose()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.json"
    path.write_text(SECRET)
    return path


@filtered
def test_exec_on_the_default_device_is_no_shell() -> None:
    """The whole attack as a client makes it."""
    with serving() as server, FastFlightClient(server.location) as client:
        attack = TAKEN_OVER + "print(attempt(lambda: os.popen('id').read()))\n"
        assert "PermissionError 1" in str(client.exec("demo", attack).to_arrow().to_pydict())


@confined
def test_a_shell_does_not_start(board: AttackedBoard) -> None:
    assert board.run("print(attempt(lambda: os.popen('id').read()))") == ["PermissionError 1"]
    assert board.run("print(attempt(lambda: os.execv('/bin/sh', ['sh', '-c', 'id'])))")[0].startswith("PermissionError")
    assert board.run("print(attempt(lambda: os.posix_spawn('/bin/sh', ['sh'], {})))")[0].startswith("PermissionError")
    assert board.run("print(c.system(b'id') != 0)") == ["True"]


@confined
def test_frames_lead_to_the_simulator_and_no_further(board: AttackedBoard, secret: Path) -> None:
    code = f"""
    def climb():
        try:
            raise ValueError
        except ValueError as error:
            frame = error.__traceback__.tb_frame
        while frame.f_back:
            frame = frame.f_back
        return frame.f_globals["__builtins__"]
    found = climb()
    opened = found["open"] if isinstance(found, dict) else found.open
    print(attempt(lambda: opened({str(secret)!r}).read()))
    print(attempt(lambda: opened("/etc/passwd").read()))
    """
    assert board.run(code) == ["PermissionError 13"] * 2


@confined
def test_what_gc_finds_lists_no_folder(board: AttackedBoard) -> None:
    code = """
    load("gc").unfreeze()
    dicts = [thing for thing in load("gc").get_objects() if isinstance(thing, dict)]
    found = [names for names in dicts if "posix_spawn" in names and callable(names["listdir"])]
    for place in ("/", "/etc", "/proc", "/dev", "/tmp", "/root", "/home"):
        print(attempt(lambda: found[0]["listdir"](place)))
    """
    assert all(line.split()[0] in ("PermissionError", "FileNotFoundError") for line in board.run(code))


@confined
def test_c_functions_open_no_file(board: AttackedBoard, secret: Path) -> None:
    code = f"""
    print(call("open", {str(secret).encode()!r}, 0))
    print(call("syscall", 257, -100, {str(secret).encode()!r}, 0))
    print(call("open", b"/proc/self/mem", 2))
    """
    assert board.run(code)[0::2] == ["errno 13", "errno 13"]


@confined
def test_nothing_outside_is_changed(board: AttackedBoard, secret: Path) -> None:
    code = f"""
    place = {str(secret)!r}
    inside = host["sys"].argv[host["sys"].argv.index("--files") + 1] + "/mine"
    open("mine", "w").close()
    print(attempt(lambda: host["os"].open(place, os.O_WRONLY)))
    print(attempt(lambda: host["os"].open(place + ".new", os.O_WRONLY | os.O_CREAT)))
    print(attempt(lambda: os.remove(place)))
    print(attempt(lambda: os.rename(place, inside)))
    print(attempt(lambda: os.rename(inside, place)))
    print(attempt(lambda: os.link(place, inside + "2")))
    print(attempt(lambda: os.symlink(place, inside + "3")))
    print(attempt(lambda: os.mkdir(place + ".d")))
    print(attempt(lambda: os.truncate(place, 0)))
    """
    assert {line.split()[0] for line in board.run(code)} <= {"PermissionError", "OSError"}
    assert secret.read_text() == SECRET
    assert [path.name for path in secret.parent.iterdir()] == [secret.name]


@confined
def test_the_library_cannot_be_changed(board: AttackedBoard) -> None:
    code = """
    print(attempt(lambda: os.open(os.__file__, os.O_WRONLY)))
    print(attempt(lambda: os.open(host["__file__"], os.O_WRONLY)))
    print(attempt(lambda: os.open(host["__file__"], os.O_RDONLY)))
    print(attempt(lambda: os.close(os.open(os.__file__, os.O_RDONLY))))
    """
    assert board.run(code) == ["PermissionError 13"] * 3 + ["None"]


@filtered
def test_the_rights_of_a_file_outside_stay(board: AttackedBoard, secret: Path) -> None:
    before = secret.stat()
    code = f"""
    for act in (lambda: os.chmod({str(secret)!r}, 0o666), lambda: os.chown({str(secret)!r}, 1, 1),
                lambda: os.utime({str(secret)!r}, (0, 0)), lambda: os.setxattr({str(secret)!r}, "user.a", b"b")):
        print(attempt(act))
    """
    assert board.run(code) == ["PermissionError 1"] * 4
    after = secret.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime) == (before.st_mode, before.st_uid, before.st_mtime)


@confined
def test_tcp_goes_nowhere(board: AttackedBoard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = f"""
        sockets = load("socket")
        print(attempt(lambda: sockets.create_connection(("127.0.0.1", {listener.getsockname()[1]}), 1)))
        print(attempt(lambda: sockets.create_server(("127.0.0.1", 0))))
        """
        assert all(line.startswith("PermissionError") for line in board.run(code))


@filtered
def test_no_other_socket_is_made(board: AttackedBoard, tmp_path: Path) -> None:
    """One with a path would lead to the user's session bus, and so to a shell."""
    path = str(tmp_path / "bus")
    with socket.socket(socket.AF_UNIX) as bus:
        bus.bind(path)
        bus.listen()
        code = f"""
        sockets = load("socket")
        def connected():
            line = sockets.socket(sockets.AF_UNIX)
            line.connect({path!r})
        print(attempt(connected))
        print(attempt(lambda: sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)))
        print(attempt(lambda: sockets.socketpair()))
        print(call("syscall", 425, 1, 0))
        """
        assert board.run(code) == ["PermissionError 1"] * 3 + ["errno 1"]


@filtered
def test_no_process_starts(board: AttackedBoard) -> None:
    assert board.run("print(attempt(os.fork))") == ["PermissionError 1"]
    assert board.run("print(attempt(lambda: load('_posixsubprocess') and load('subprocess').run(['true'])))") == [
        "PermissionError 1"
    ]


@filtered
def test_a_program_in_memory_does_not_run(board: AttackedBoard) -> None:
    code = """
    program = os.memfd_create("program")
    os.write(program, b"#!/bin/sh\\nid\\n")
    print(attempt(lambda: os.execve(program, ["program"], {})))
    os.close(program)
    """
    assert board.run(code) == ["PermissionError 1"]


@confined
def test_the_parent_is_out_of_reach(board: AttackedBoard) -> None:
    code = """
    parent = os.getppid()
    for name in ("environ", "mem", "maps", "fd", "root", "cwd"):
        print(attempt(lambda: os.open("/proc/%d/%s" % (parent, name), 0)))
    for number in (0, 9, 19):
        print(attempt(lambda: os.kill(parent, number)))
    print(call("ptrace", 16, parent, 0, 0))
    """
    found = board.run(code)
    assert all(line.startswith("PermissionError") for line in found[:-1])
    assert found[-1] == "errno 1"


@filtered
def test_the_limits_of_the_parent_stay(board: AttackedBoard) -> None:
    code = """
    resource = load("resource")
    print(attempt(lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0))))
    print(attempt(lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)))
    print(attempt(lambda: os.sched_setaffinity(os.getppid(), {0})))
    """
    assert board.run(code) == ["PermissionError 1"] * 3


@confined
def test_its_own_limits_cannot_be_raised(board: AttackedBoard) -> None:
    code = """
    resource = load("resource")
    for name in ("AS", "FSIZE", "NOFILE", "NPROC", "CORE"):
        number = getattr(resource, "RLIMIT_" + name)
        soft, hard = resource.getrlimit(number)
        raised = attempt(lambda: resource.setrlimit(number, (hard + 1, hard + 1)))
        print(name, soft == hard, hard >= 0, raised is not None)
    """
    assert {line.split(" ", 1)[1] for line in board.run(code)} == {"True True True"}


@confined
def test_no_file_is_longer_than_the_boards_flash(board: AttackedBoard) -> None:
    code = """
    path = host["sys"].argv[host["sys"].argv.index("--files") + 1] + "/big"
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    def fill():
        while True:
            os.write(file, b"x" * 100000)
    print(attempt(fill), os.fstat(file).st_size)
    os.close(file)
    os.remove(path)
    """
    assert board.run(code) == ["OSError 27 1000000"]


@confined
def test_memory_ends_at_a_limit(board: AttackedBoard) -> None:
    code = """
    def fill():
        held = []
        while True:
            held.append(bytearray(16 << 20))
            if len(held) > 1000:
                return "no limit"
    print(attempt(fill))
    print(attempt(lambda: load("mmap").mmap(-1, 1 << 30)))
    """
    assert board.run(code) == ["MemoryError ", "OSError 12"]


@confined
def test_descriptors_end_at_a_limit(board: AttackedBoard) -> None:
    code = """
    held = []
    def fill():
        while len(held) < 5000:
            held.append(os.dup(0))
        return "no limit"
    print(attempt(fill), len(held) < 200)
    for one in held:
        os.close(one)
    """
    assert board.run(code) == ["OSError 24 True"]


@confined
def test_it_inherits_its_line_and_nothing_else(board: AttackedBoard) -> None:
    """No descriptor of the server, and of its environment not a word but the token that opened the line."""
    with open(os.devnull) as kept:
        os.set_inheritable(kept.fileno(), True)
        code = """
        stat = load("stat")
        def kind(number):
            try:
                state = os.fstat(number)
            except BaseException:
                return ""
            return "null" if state.st_rdev == 259 else "socket" if stat.S_ISSOCK(state.st_mode) else "other"
        print([kind(number) for number in range(200) if kind(number)])
        print(sorted(os.environ))
        environment = ctypes.POINTER(ctypes.c_char_p).in_dll(c, "environ")
        print([environment[0]] if environment[0] is None else environment[0].split(b"=")[0])
        """
        found = board.run(code)
    assert found[0] == "['null', 'null', 'null', 'socket']"
    assert "PATH" not in found[1] and "HOME" not in found[1] and "USER" not in found[1]


@confined
def test_capabilities_and_privileges_are_gone(board: AttackedBoard) -> None:
    code = """
    print(c.prctl(39, 0, 0, 0, 0))
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    c.capget(header, sets)
    print([one & ~2 for one in sets])
    print(attempt(lambda: os.setuid(12345)) if os.getuid() == 0 else "PermissionError 1")
    """
    assert board.run(code) == ["1", "[0, 0, 0, 0, 0, 0]", "PermissionError 1"]


@confined
def test_threads_that_run_already_are_inside_too(board: AttackedBoard, secret: Path) -> None:
    """Landlock holds for a thread and those that it starts: the threads of the line must have come later."""
    code = """
    for thread in load("threading").enumerate():
        print(thread.name)
    """
    assert "reader" in board.run(code)
    code = f"""
    load("gc").unfreeze()
    link = [thing for thing in load("gc").get_objects() if type(thing).__name__ == "Line"][0]._link
    class Spy:
        def __init__(self):
            self.result = ""
            self.recv = lambda size: self.look(size)
            self.real = link._socket
        def look(self, size):
            self.result = attempt(lambda: os.open({str(secret)!r}, 0))
            link._socket = self.real
            return self.real.recv(size)
        def sendall(self, data):
            return self.real.sendall(data)
    spy = Spy()
    link._socket = spy
    """
    board.run(code)
    board.run("pass")
    board.run("pass")
    assert board.run("print(spy.result)") == ["PermissionError 13"]


# Makes the calls of Landlock unknown, as on an older kernel, and becomes another program.
OLD_KERNEL = f"""
import ctypes, os, struct, sys
calls = [(0x20, 0, 0, 0)]
for number in (444, 445, 446):
    calls += [(0x15, 0, 1, number), (0x06, 0, 0, {0x0005_0000 | 38})]
calls += [(0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *call) for call in calls))
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))
library = ctypes.CDLL(None)
program = Program(len(calls), ctypes.addressof(code))
assert library.prctl(38, 1, 0, 0, 0) == 0 and library.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@confined
def test_without_landlock_the_board_works_and_the_log_says_what_does_not_hold() -> None:
    with running(program=(sys.executable, "-c", OLD_KERNEL, "-m", "fastflight")) as server:
        asked = [*FASTFLIGHT, "exec", "demo", "print(6 * 7)", "--server", server.location]
        answer = run_command(asked, capture_output=True, text=True, timeout=60, check=True).stdout
        assert server.end() == 0
    said = "".join(server.lines)
    assert answer == "42\n"
    assert "code on a simulated board has the rights of this user" in said
    assert "this kernel has no Landlock" in said


def test_a_filter_is_whole_instructions() -> None:
    for number, column in syscalls.ARCHITECTURES.values():
        code = syscalls._program(number, column)
        *_, last = struct.iter_unpack("HBBI", code)
        assert last == (syscalls.RETURN, 0, 0, syscalls.ALLOW)
        assert len(code) // 8 < 4096
