"""What a board calls its files, and where they would land in a folder of whoever copies them."""

from __future__ import annotations

from fastflight.errors import DataError

from .case import Case

ELSEWHERE = "it leads elsewhere"
CONTROL = "it holds a control character"

# On every system.
NAMES = [
    Case("one folder up", "../x", DataError, ELSEWHERE),
    Case("up from within", "a/../../x", DataError, ELSEWHERE),
    Case("up at the end", "a/..", DataError, ELSEWHERE),
    Case("the folder itself", ".", DataError, ELSEWHERE),
    Case("nothing", "", DataError, ELSEWHERE),
    Case("an absolute path", "/etc/passwd", DataError, ELSEWHERE),
    Case("a doubled slash", "a//b", DataError, ELSEWHERE),
    Case("a slash at the end", "a/", DataError, ELSEWHERE),
    Case("up, as Windows has it", "..\\x", DataError, "it holds a backslash"),
    Case("a share of Windows", "\\\\host\\share", DataError, "it holds a backslash"),
    Case("NUL", "a\0.txt", DataError, CONTROL),
    Case("a line feed", "a\nb", DataError, CONTROL),
    Case("an escape sequence", "\x1b[2J", DataError, CONTROL),
    Case("half a character", "a\ud800", DataError, "it is not text"),
    Case("three dots are a name", ".../x", outcome=".../x"),
    Case("what HTTP would decode is a name", "%2e%2e%2fx", outcome="%2e%2e%2fx"),
    Case("a home folder is a name", "~/x", outcome="~/x"),
    Case("a variable is a name", "$HOME/x", outcome="$HOME/x"),
    Case("a hyphen in front is a name", "-rf", outcome="-rf"),
    Case("what leads up in another script is a name", "\uff0e\uff0e/x", outcome="\uff0e\uff0e/x"),
]

# On Windows beside these.
WINDOWS = [
    Case("a drive", "C:x", DataError, "Windows does not allow"),
    Case("a hidden stream", "a.txt:b", DataError, "Windows does not allow"),
    Case("a device", "con", DataError, "Windows has a device of that name"),
    Case("a device in capitals, with an ending", "NUL.txt", DataError, "Windows has a device"),
    Case("a device in a folder", "a/com1", DataError, "Windows has a device"),
    Case("a port in superscript", "LPT\u00b2", DataError, "Windows has a device"),
    Case("a device with a space before its ending", "aux .txt", DataError, "Windows has a device"),
    Case("a dot at the end", "a.", DataError, "Windows drops"),
    Case("a space at the end", "a ", DataError, "Windows drops"),
    Case("a wildcard", "a*", DataError, "Windows does not allow"),
]

CASES = {"names that land": NAMES, "names that land on Windows": WINDOWS}
