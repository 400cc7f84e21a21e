"""What a board answers: listings, details, digests, storage, tracebacks, what it says of itself, blocks of files."""

from __future__ import annotations

from fastflight.device.answers import MAX_LITERAL_CHARACTERS, WHOLE
from fastflight.device.listing import MAX_TIME
from fastflight.errors import DeviceError, DeviceException, DeviceMemory, FileMissing, ProtocolError, RequestError

from .case import Case

BAD = "the board listed"
DIGITS = b"9" * 5000

# What a folder's listing printed, and the entries' paths, sizes and times.
LISTINGS = [
    Case("nothing", b"", outcome=[]),
    Case("a good line", b"('a', 32768, 3, 5)", outcome=[("/d/a", 3, 5.0)]),
    Case("no times", b"('a', 32768, 3, None)", outcome=[("/d/a", 3, None)]),
    Case("a file that does not say how long it is", b"('a', 32768, None, 0)", ProtocolError, BAD),
    Case("a name that leads up", b"('..', 16384, 0, 0)", ProtocolError, BAD),
    Case("a name that leads nowhere", b"('.', 16384, 0, 0)", ProtocolError, BAD),
    Case("no name", b"('', 32768, 0, 0)", ProtocolError, BAD),
    Case("the root as a folder in a folder", b"('/', 16384, 0, 0)", ProtocolError, BAD),
    Case("an absolute name", b"('/etc/passwd', 32768, 0, 0)", ProtocolError, BAD),
    Case("a name of several parts", b"('a/../../b', 32768, 0, 0)", ProtocolError, BAD),
    Case("a name with NUL", b"('a\\x00b', 32768, 0, 0)", ProtocolError, BAD),
    Case("half a surrogate pair", b"('\\ud800', 32768, 0, 0)", ProtocolError, BAD),
    Case("a name of bytes", b"(b'a', 32768, 0, 0)", ProtocolError, BAD),
    Case("a name that is a number", b"(1, 32768, 0, 0)", ProtocolError, BAD),
    Case("a backslash, which is a character on a board", b"('a\\\\b', 32768, 0, 0)", outcome=[("/d/a\\b", 0, None)]),
    Case("a control character", b"('\\x1b[2J', 32768, 0, 0)", outcome=[("/d/\x1b[2J", 0, None)]),
    Case("a name that is too long for any board", b"('%s', 32768, 0, 0)" % (b"x" * 9000), outcome=[("/d/" + "x" * 9000, 0, None)]),
    Case("a line without end", b"('%s', 1, 1, 1)" % (b"x" * MAX_LITERAL_CHARACTERS), ProtocolError, BAD),
    Case("a size below nothing", b"('a', 32768, -1, 0)", outcome=[("/d/a", 0, None)]),
    Case("a size beyond 64 bits", b"('a', 32768, %d, 0)" % (WHOLE.stop), ProtocolError, BAD),
    Case("a size of thousands of digits", b"('a', 32768, %s, 0)" % DIGITS, ProtocolError, BAD),
    Case("an infinite size", b"('a', 32768, 1e999, 0)", ProtocolError, BAD),
    Case("a size with a fraction", b"('a', 32768, 1.5, 0)", ProtocolError, BAD),
    Case("a size of text", b"('a', 32768, '1', 0)", ProtocolError, BAD),
    Case("a kind of text", b"('a', 'file', 1, 0)", ProtocolError, BAD),
    Case("a kind in hexadecimal without end", b"('a', 0x%s, 1, 0)" % (b"f" * 8000), ProtocolError, BAD),
    Case("a time before all calendars", b"('a', 32768, 1, -1)", outcome=[("/d/a", 1, None)]),
    Case("the last second there is", b"('a', 32768, 1, %d)" % MAX_TIME, outcome=[("/d/a", 1, float(MAX_TIME))]),
    Case("a time after all calendars", b"('a', 32768, 1, %d)" % (MAX_TIME + 1), outcome=[("/d/a", 1, None)]),
    Case("a time beyond a double", b"('a', 32768, 1, 1%s)" % (b"0" * 400), ProtocolError, BAD),
    Case("a time that is no number", b"('a', 32768, 1, 'now')", ProtocolError, BAD),
    Case("too few details", b"('a', 32768, 1)", ProtocolError, BAD),
    Case("too many details", b"('a', 32768, 1, 0, 0)", ProtocolError, BAD),
    Case("a dictionary", b"{'a': 1}", ProtocolError, BAD),
    Case("a call", b"__import__('os').getcwd()", ProtocolError, BAD),
    Case("brackets without end", b"(" * 5000, ProtocolError, BAD),
    Case("minus signs without end", b"-" * 5000 + b"1", ProtocolError, BAD),
    Case("a sum without end", b"1" + b"+1" * 5000, ProtocolError, BAD),
    Case("a tuple of a million", b"(%s)" % (b"1," * 1_000_000), ProtocolError, BAD),
    Case("bytes that are no text", b"('\xff', 32768, 1, 0)", outcome=[("/d/\ufffd", 1, None)]),
    Case("a NUL between the lines", b"('a', 32768, 1, 0)\n\x00", ProtocolError, BAD),
    Case("what a program printed", b"temperature=21.5", ProtocolError, BAD),
    Case("an f-string", b"(f'{1}', 32768, 1, 0)", ProtocolError, BAD),
    Case("a line separator inside of a name", "('a\u2028b', 32768, 1, 0)".encode(), ProtocolError, BAD),
]  # fmt: skip

# What `hashes` of the folder /d is told, and the paths that it takes.
DIGESTS = [
    Case("a good line", b"('/d/a', 1, b'\\x01')", outcome=["/d/a"]),
    Case("dots while the board works", b"....('/d/a', 1, b'')", outcome=["/d/a"]),
    Case("a path beside the folder", b"('/e/a', 1, b'')", ProtocolError, BAD),
    Case("a path that begins like the folder", b"('/dd/a', 1, b'')", ProtocolError, BAD),
    Case("a path that leads out", b"('/d/../e', 1, b'')", ProtocolError, BAD),
    Case("the folder itself", b"('/d', 1, b'')", ProtocolError, BAD),
    Case("a doubled slash", b"('/d//a', 1, b'')", ProtocolError, BAD),
    Case("a relative path", b"('a', 1, b'')", ProtocolError, BAD),
    Case("a path with NUL", b"('/d/\\x00', 1, b'')", ProtocolError, BAD),
    Case("a path with half a surrogate pair", b"('/d/\\udfff', 1, b'')", ProtocolError, BAD),
    Case("a number where bytes should be, as large as memory", b"('/d/a', 1, 99999999999)", ProtocolError, BAD),
    Case("a list where bytes should be", b"('/d/a', 1, [1, 2])", ProtocolError, BAD),
    Case("a digest that is longer than any", b"('/d/a', 1, b'%s')" % (b"x" * 33), ProtocolError, BAD),
    Case("an infinite size", b"('/d/a', 1e999, b'')", ProtocolError, BAD),
    Case("no tuple", b"None", ProtocolError, BAD),
    Case("garbage", b"\xff\xfe\x00", ProtocolError, BAD),
]

# What `STORAGE` printed, and what is understood.
STORAGES = [
    Case("a good line", b"(4096, 1024)\r\n", outcome=(4096, 1024)),
    Case("nothing", b"", ProtocolError, "of its storage"),
    Case("one number", b"4096", ProtocolError, "of its storage"),
    Case("less than nothing", b"(-1, 0)", outcome=(-1, 0)),
    Case("infinity", b"(1e999, 0)", ProtocolError, "of its storage"),
    Case("beyond 64 bits", b"(0x%s, 0)" % (b"f" * 17), ProtocolError, "of its storage"),
    Case("text", b"('a', 'b')", ProtocolError, "of its storage"),
    Case("three numbers", b"(1, 2, 3)", ProtocolError, "of its storage"),
    Case("bytes that are no text", b"\xff", ProtocolError, "of its storage"),
]

TRACE = b'Traceback (most recent call last):\r\n  File "<stdin>", line 1, in <module>\r\n'

# What stood on the board's error channel.
TRACEBACKS = [
    Case("nothing", b"", DeviceException, "raised an error"),
    Case("a file that is not there", TRACE + b"OSError: [Errno 2] ENOENT", FileMissing, "no such file"),
    Case("an error number of thousands of digits", TRACE + b"OSError: " + DIGITS, DeviceException, "raised OSError"),
    Case("an error number below nothing", TRACE + b"OSError: -2", FileMissing, "no such file"),
    Case("an error number that nobody knows", TRACE + b"OSError: 12345", DeviceException, "raised OSError: 12345"),
    Case("an error that is no word", TRACE + b"\xff\xfe: \x00", DeviceException, "raised"),
    Case("no memory, at length", TRACE + b"MemoryError: " + b"x" * 500, DeviceMemory, "ran out of memory"),
    Case("a name that is not clean", TRACE + b"Os\x1bError: [2J", DeviceException, "raised"),
    Case("a folder", TRACE + b"OSError: 21", DeviceError, "it is a folder"),
    Case("only a line feed", b"\n", DeviceException, "raised an error"),
]

# What the probe printed, and the fields that are kept of it: features, machine, free memory, epoch, unique id.
PROBES = [
    Case("nothing", b"", outcome=(0, "", 0, 1970, "")),
    Case("a machine of half a character", b"machine='\\ud800'", outcome=(0, "?", 0, 1970, "")),
    Case("a machine without end", b"machine='%s'" % (b"x" * 9000), outcome=(0, "x" * 200, 0, 1970, "")),
    Case("a machine that is a number", b"machine=5", outcome=(0, "5", 0, 1970, "")),
    Case("memory of thousands of digits", b"free_memory=" + DIGITS, outcome=(0, "", 0, 1970, "")),
    Case("memory beyond 64 bits", b"free_memory=0x" + b"f" * 4000, outcome=(0, "", 0, 1970, "")),
    Case("memory below nothing", b"free_memory=-1", outcome=(0, "", -1, 1970, "")),
    Case("memory that is text", b"free_memory='all'", outcome=(0, "", 0, 1970, "")),
    Case("an epoch that is infinite", b"epoch=1e999", outcome=(0, "", 0, 1970, "")),
    Case("an id that is text", b"unique_id='abc'", outcome=(0, "", 0, 1970, "")),
    Case("an id without end", b"unique_id=b'%s'" % (b"x" * 5000), outcome=(0, "", 0, 1970, "78" * 200)),
    Case("only equals signs", b"===\n=\n=1", outcome=(0, "", 0, 1970, "")),
    Case("a value that is code", b"machine=open('/etc/passwd')", outcome=(0, "", 0, 1970, "")),
    Case("brackets without end", b"machine=" + b"[" * 9000, outcome=(0, "", 0, 1970, "")),
    Case("a feature that is none", b"\xff\xff", outcome=(1, "", 0, 1970, "")),
]

# Names that a caller gives: what the board's path is then.
PATHS = [
    Case("nothing is the root", "", outcome="/"),
    Case("up from the root stays there", "/../../etc/passwd", outcome="/etc/passwd"),
    Case("up through a folder", "a/../../b", outcome="/b"),
    Case("doubled slashes", "//a///b//", outcome="/a/b"),
    Case("dots alone", "././.", outcome="/"),
    Case("NUL", "a\0b", RequestError, "the path holds the character '\\x00'"),
    Case("half a surrogate pair", "a\ud800", RequestError, "the path holds the character"),
    Case("a backslash is a character", "..\\..\\b", outcome="/..\\..\\b"),
    Case("what HTTP would decode is a name", "%2e%2e%2f", outcome="/%2e%2e%2f"),
    Case("a line feed is a character", "a\nb", outcome="/a\nb"),
    Case("three dots are a name", ".../a", outcome="/.../a"),
    Case("up again and again", "../" * 300 + "a", outcome="/a"),
]

CASES = {
    "listings": LISTINGS,
    "digests": DIGESTS,
    "storage": STORAGES,
    "tracebacks": TRACEBACKS,
    "probes": PROBES,
    "paths": PATHS,
}
