"""What a target is, and where they are: modules of `tests.campaigns.fuzz.targets`, and properties of the normal tests.

A module has its target as `TARGET`. A property is a test with `@given`: hypothesis draws from the fuzzer's bytes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

TARGETS = Path(__file__).parent / "targets"
# Where each is. Bytes that are too few for what is drawn are passed over.
PROPERTIES: dict[str, tuple[str, str]] = {
    "arrow": ("tests.tables.test_arrow", "test_damaged_streams_are_valid_rows_or_documented_errors"),
    "arrow_types": (
        "tests.tables.test_schemas",
        "test_any_name_is_a_type_whose_own_name_means_the_same_or_is_refused",
    ),
    "authorization": ("tests.access.test_tokens", "test_any_header_shows_something_or_nothing"),
    "board_output": ("tests.device.test_answers", "test_any_output_of_a_board_is_an_answer_or_a_typed_error"),
    "columns": ("tests.tables.test_columns", "test_any_split_gives_the_same_count_and_nothing_raises"),
    "csv": ("tests.tables.test_csv", "test_any_split_gives_the_same"),
    "flight_sql": ("tests.protocol.test_flight_sql", "test_any_bytes_are_a_message_or_a_typed_error"),
    "frames": ("tests.device.transfer.test_frames", "test_steps_fit_and_add_up_and_interrupt_nobody"),
    "jsonl": ("tests.tables.test_jsonl", "test_any_split_gives_the_same"),
    "lines": ("tests.sources.test_session_rows", "test_any_split_gives_the_same_lines"),
    "raw_repl": ("tests.protocol.test_raw_repl", "test_garbage_raises_only_documented_errors"),
    "relay_targets": ("tests.gateway.test_relay_targets", "test_no_target_gets_around_a_network"),
    "request": ("tests.service.test_wire", "test_any_value_is_taken_or_refused_by_name"),
    "rfc2217_server": ("tests.protocol.test_rfc2217_server", "test_garbage_is_no_error_and_any_split_the_same"),
    "scopes": ("tests.access.test_identity", "test_any_text_is_a_scope_or_refused_with_a_typed_error"),
    "telnet": ("tests.protocol.test_telnet", "test_any_split_gives_the_same"),
    "tokens": ("tests.access.test_tokens", "test_any_bytes_are_a_book_or_refused_with_a_typed_error"),
    "trace": ("tests.runtime.test_tracing", "test_whatever_comes_what_is_passed_on_is_well_formed"),
}
# Hypothesis spends several bytes on each choice.
PROPERTY_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Target:
    """`run` raises when something does not hold of the bytes that it is given.

    `seeds` are what the parser meets on a good day; mutation begins there. `past` are inputs that once broke it.
    """

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    past: tuple[bytes, ...] = ()
    # Longer inputs are slower and seldom say more; a limit of the parser's own is worth reaching.
    max_bytes: int = 128
    # An execution that takes longer hangs.
    seconds: int = 5
    # Of the whole process, with what it imports.
    max_megabytes: int = 1024
    # Around all executions: what the target needs to be running.
    running: Callable[[], AbstractContextManager[None]] = nullcontext


def names() -> list[str]:
    """All targets."""
    return sorted([*PROPERTIES, *(module.name for module in pkgutil.iter_modules([str(TARGETS)]))])


def load(name: str) -> Target:
    """The target of that name; what it tests is imported now."""
    if name in PROPERTIES:
        module, test = PROPERTIES[name]
        run = getattr(importlib.import_module(module), test).hypothesis.fuzz_one_input
        return Target(run, (bytes(PROPERTY_BYTES),), max_bytes=PROPERTY_BYTES)
    target = importlib.import_module(f"tests.campaigns.fuzz.targets.{name}").TARGET
    assert isinstance(target, Target)
    return target
