"""What boards print: literals become values, and tracebacks, as each port prints them, become typed errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.device.answers import failure, integer, literal, own_failure, routine_failure, text
from fastflight.device.capabilities import parse
from fastflight.errors import DeviceError, DeviceException, DeviceFull, DeviceMemory, FileMissing, ProtocolError

TRACE = 'Traceback (most recent call last):\r\n  File "<stdin>", line 1, in <module>\r\n'


@pytest.mark.parametrize(
    ("line", "platform", "kind"),
    [
        ("OSError: [Errno 2] ENOENT", "esp32", FileMissing),
        ("OSError: 2", "esp8266", FileMissing),
        ("OSError: (2, 'x')", "", FileMissing),
        ("OSError: -2", "", FileMissing),
        ("OSError: 44", "webassembly", FileMissing),
        ("OSError: file not found", "microbit", FileMissing),
        ("OSError: [Errno 28] ENOSPC", "rp2", DeviceFull),
        ("OSError: (28,)", "microbit", DeviceFull),
        ("OSError: 51", "webassembly", DeviceFull),
        ("OSError: [Errno 12] ENOMEM", "", DeviceMemory),
        ("MemoryError: memory allocation failed, allocating 4096 bytes", "", DeviceMemory),
        ("MemoryError: ", "microbit", DeviceMemory),
        ("MemoryError", "", DeviceMemory),
    ],
)
def test_typed(line: str, platform: str, kind: type[DeviceError]) -> None:
    error = failure((TRACE + line + "\r\n").encode(), where="/x", platform=platform)
    assert type(error) is kind
    assert error.where == "/x"
    assert error.hint


@pytest.mark.parametrize(
    ("line", "platform", "errno", "text"),
    [
        ("OSError: [Errno 21] EISDIR", "", "EISDIR", "it is a folder"),
        ("OSError: 31", "webassembly", "EISDIR", "it is a folder"),
        ("OSError: EISDIR", "webassembly", "EISDIR", "it is a folder"),
        ("OSError: [Errno 17] EEXIST", "", "EEXIST", "it exists already"),
        ("OSError: 20", "webassembly", "EEXIST", "it exists already"),
        ("OSError: 20", "esp32", "ENOTDIR", "a file, not a folder"),
        ("OSError: 39", "", "ENOTEMPTY", "the folder is not empty"),
        ("OSError: 55", "webassembly", "ENOTEMPTY", "the folder is not empty"),
        ("OSError: 30", "", "EROFS", "read-only"),
        ("OSError: 36", "", "ENAMETOOLONG", "too long"),
    ],
)
def test_other_refusals_say_what_they_mean(line: str, platform: str, errno: str, text: str) -> None:
    error = failure((TRACE + line).encode(), where="/x", platform=platform)
    assert type(error) is DeviceError
    assert error.errno == errno
    assert text in str(error)


@pytest.mark.parametrize(
    ("stderr", "kind", "what"),
    [
        (TRACE + "ValueError: too hot", "ValueError", "raised ValueError: too hot"),
        (TRACE + "KeyboardInterrupt: ", "KeyboardInterrupt", "raised KeyboardInterrupt"),
        (TRACE + "OSError: [Errno 110] ETIMEDOUT", "OSError", "raised OSError: [Errno 110] ETIMEDOUT"),
        (TRACE + "my.Error: x", "my.Error", "raised my.Error: x"),
        ("\xff\xfe", "", "raised"),
        ("", "", "raised an error"),
    ],
)
def test_exceptions_keep_their_traceback(stderr: str, kind: str, what: str) -> None:
    error = failure(stderr.encode("latin-1"), where="/x")
    assert isinstance(error, DeviceException)
    assert error.kind == kind
    assert what in error.what
    assert "\r" not in error.traceback


@pytest.mark.parametrize(
    "last",
    [
        b"SyntaxError: invalid syntax",
        b"NameError: name 'binasii' isn't defined",
        b"ImportError: no module named 'bultins'",
        b"AttributeError: 'module' object has no attribute 'exc'",
    ],
)
def test_code_of_ours_that_is_wrong_was_changed_on_the_line(last: bytes) -> None:
    stderr = TRACE.encode() + last
    error = own_failure(stderr, where="/x")
    assert isinstance(error, ProtocolError)
    assert str(error).startswith("/x: what was sent to the board was changed or lost on the line")
    assert isinstance(failure(stderr, where="/x"), DeviceException)
    assert isinstance(own_failure(b"OSError: 28", where="/x"), DeviceFull)
    inside = TRACE.encode() + b'  File "<string>", line 1, in <module>\r\nAttributeError: x'
    assert isinstance(own_failure(inside, where="/x"), DeviceException)


def test_a_number_of_thousands_of_digits_is_no_known_error() -> None:
    error = failure(b"OSError: " + b"9" * 5000, where="/x")
    assert type(error) is DeviceException
    assert error.kind == "OSError"


def test_what_boards_print() -> None:
    assert literal("('a\\n', 32768, 3, None)") == ("a\n", 32768, 3, None)
    assert literal("b'\\x00'") == b"\0"


@pytest.mark.parametrize("text", ["", "x", "(", "{[]: 1}", "(" * 5000, "-" * 100_000 + "1", "\0", "1\n2"])
def test_anything_else_is_one_error(text: str) -> None:
    with pytest.raises(ValueError):
        literal(text)


@given(given_=st.text(st.sampled_from("()[]{}'\"\\,:-+ab1 \n"), max_size=40))
def test_whatever_comes_raises_nothing_else(given_: str) -> None:
    try:
        literal(given_)
    except ValueError:
        pass


PRINTED = st.sampled_from([
    b"hashlib.sha256\n", b"platform='esp32'\n", b"free_memory=", b"epoch=2000", b"unique_id=b'\\x01'\r\n", b"-1",
    b"1e999", b"9" * 5000, b"MemoryError: ", b"OSError: ", b"[Errno 2] ENOENT\n", TRACE.encode(), b"(" * 3000,
])  # fmt: skip


@given(st.lists(PRINTED | st.binary(max_size=20), max_size=6).map(b"".join), st.sampled_from(["rp2", "webassembly"]))
def test_any_output_of_a_board_is_an_answer_or_a_typed_error(printed: bytes, platform: str) -> None:
    try:
        assert parse(printed).block_bytes > 0
    except ProtocolError as error:
        assert str(error)
    for make in (failure, own_failure, routine_failure):
        error = make(printed, where="/x", platform=platform)
        assert isinstance(error, DeviceError | ProtocolError) and str(error)


def test_numbers_of_64_bits_and_text_that_can_be_written() -> None:
    assert (integer(-1), integer(2**63 - 1), text("ü")) == (-1, 2**63 - 1, "ü")
    for odd in (2**63, -(2**63) - 1, 1.0, float("inf"), "1", None):
        with pytest.raises(ValueError):
            integer(odd)
    for odd in ("\ud800", b"x", 1):
        with pytest.raises(ValueError):
            text(odd)
