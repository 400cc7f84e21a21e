"""What is sent for code of our own: it leaves `__main__` as it was, and does not depend on it."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.own_code import BEGIN, ECHO, RUN, RUN_IN_MAIN, pieces, show, wrap, wrap_for_program
from fastflight.protocol.raw_repl import PLAIN_BYTES

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)


@pytest.fixture(scope="module", autouse=True)
def _heap_of_a_board() -> Iterator[None]:
    """Code for boards collects the heap first. That of the whole test run takes as long as a hundred examples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "gc", SimpleNamespace(collect=lambda: None))
        yield


def run(code: bytes | str, main: dict[str, Any]) -> None:
    """Run code in a `__main__` with these names, most of them those of builtins."""
    exec(code, main)
    main.pop("__builtins__", None)


def shadowed() -> dict[str, Any]:
    return {name: "mine" for name in dir(builtins) if not name.startswith("__")} | {"seen": [], "os": 1}


CODE = b"import os\nn = len('abc')\nassert os.path\nprint(n, \"it's\", '\\\\')\n"


@pytest.mark.parametrize(
    "code", [wrap(CODE), wrap(CODE, sealed=True), wrap_for_program(CODE.decode())], ids=["plain", "sealed", "program"]
)
def test_code_of_our_own_neither_sees_nor_changes_main(code: bytes | str, capsys: pytest.CaptureFixture[str]) -> None:
    main = shadowed()
    run(code, main)
    assert main == shadowed()
    assert capsys.readouterr().out == "3 it's \\\n"


@pytest.mark.parametrize("code", [wrap(b"1 / 0"), wrap(b"1 / 0", sealed=True), wrap_for_program("1 / 0")])
def test_code_that_fails_leaves_nothing_in_main(code: bytes | str) -> None:
    main = shadowed()
    with pytest.raises(ZeroDivisionError):
        run(code, main)
    main.pop("__builtins__", None)
    assert main == shadowed()


def test_code_that_arrives_damaged_does_not_run() -> None:
    main = shadowed()
    with pytest.raises(SyntaxError):
        run(wrap(CODE, sealed=True).replace(b"abc", b"abd"), main)
    main.pop("__builtins__", None)
    assert main == shadowed()


@given(TEXT)
def test_pieces_run_as_the_code_and_fit_the_smallest_ring(text: str) -> None:
    main = shadowed()
    code = f"import sys\nsys.modules['_ff_test'].append({text!r})\n"
    seen: Any = []
    sys.modules["_ff_test"] = seen
    for piece in (*BEGIN, *pieces(code, PLAIN_BYTES - 1), RUN):
        assert len(piece) < PLAIN_BYTES
        run(piece, main)
    assert seen == [text]
    assert main == shadowed()


@given(TEXT)
def test_code_of_a_user_runs_in_main(text: str) -> None:
    main = shadowed()
    for piece in (*BEGIN, *pieces(f"mine = {text!r}", PLAIN_BYTES - 1), RUN_IN_MAIN):
        assert len(piece) < PLAIN_BYTES
        run(piece, main)
    assert main == shadowed() | {"mine": text}


def test_an_echo_removes_what_a_broken_command_has_left(capsys: pytest.CaptureFixture[str]) -> None:
    main = shadowed() | {"_ff": "left"}
    run(ECHO.format(token="fff-ffffff"), main)
    assert main == shadowed()
    assert capsys.readouterr().out == "fff-ffffff"
    assert len(ECHO.format(token="fff-ffffff")) < PLAIN_BYTES


@pytest.mark.parametrize("expression", ["mine, len", "mine, len  # a comment", "(mine,\n len)"])
def test_the_value_of_an_expression_is_shown(expression: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = shadowed() | {"mine": "its own", "len": None}
    run(show(expression), main)
    assert main == shadowed() | {"mine": "its own", "len": None}
    assert capsys.readouterr().out == "('its own', None)\n"


@pytest.mark.parametrize("code", [show("1"), wrap_for_program("n = 1")])
def test_code_that_is_run_as_a_users_leaves_the_name_that_aiorepl_needs_after_it(code: str) -> None:
    main: dict[str, Any] = {"_ff": "aiorepl's"}
    run(code, main)
    assert main == {"_ff": "aiorepl's"}
