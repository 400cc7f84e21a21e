"""Fixtures for every test: real targets, boards on a desk, and the leak check."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import os
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import structlog
from hypothesis import HealthCheck, settings

from fastflight.concurrency.shard import new_loop
from tests.support import browser, commands, targets
from tests.support.leaks import held, leaked
from tests.support.small_disk import SmallDisk
from tests.support.targets import TargetMissing

_passed = pytest.StashKey[bool]()

TESTS = Path(__file__).parent
# Folders, and files with few tests, whose tests start programs and take seconds each.
SLOW = (
    "app/", "benchmark/", "board/", "campaigns/", "cluster/", "interop/", "release/", "bridge/test_interop",
    "cli/test_bridge", "cli/test_cluster", "cli/test_deploy", "cli/test_interrupt", "cli/test_serve",
    "cli/test_shutdown", "cli/test_sql", "device/test_busy_boards", "docs/test_notebooks",
    "docs/test_proxy", "gateway/test_browser", "gateway/test_openapi", "gateway/test_sql", "log/test_full_disk",
    "test_conftest",
)  # fmt: skip

# How long an example takes, or to draw it, is the machine's affair: hypothesis itself thinks so only where `CI` is set.
# Examples differ from run to run, so many runs see as much with a quarter of hypothesis's number.
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("unhurried", QUICK)
# For another Python (.ci/pythons): each test runs there, and no test for long.
settings.register_profile("few", QUICK, max_examples=5)
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        action="append",
        default=[],
        metavar="URL",
        help="run tests/board on this board, instead of the targets on this computer (may be given again)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of `pytest_collection_modifyitems`, and undo what programs that a test starts would inherit.

    A shell starts what runs in its background deaf to Ctrl-C. And where bytecode is not written, each program compiles
    all its modules again: 2.5 s of CPU time for each start of the command line, instead of 0.9 s.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    config.option.loadscopereorder = False  # see `pytest_collection_modifyitems`
    sys.dont_write_bytecode = False
    # Two parts of Arrow look for pandas, each only once. Commands hide it from Arrow, and tests run commands in this
    # process: so that later tests can make data frames, Arrow finds it now.
    pa.array([0])
    pa.scalar(0, pa.timestamp("ns")).as_py()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection, which would look at all tests again and again: a second for each worker."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have files begin early that take long: one that is left for the end keeps one worker busy while all others rest.

    Without this, pytest-xdist begins with the files that have the most tests, so a file with one long test comes last.
    """
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (not item.path.relative_to(TESTS).as_posix().startswith(SLOW), -sizes[item.path]))


def pytest_collection_finish() -> None:
    """Leave what collecting has made out of garbage collection, which the leak check runs often.

    With all tests collected it would take 0.3 s each time.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Give it back: libraries in C++ look at the end whether anything is left of their objects."""
    gc.unfreeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With `CI` set, fail the run for a skip whose reason is not in `skips.txt`."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skips = reporter.stats.get("skipped") if reporter and in_ci() else None  # workers of pytest-xdist have no reporter
    if not skips:
        return
    allowed = [line for line in (TESTS / "skips.txt").read_text().splitlines() if not line.startswith("#")]
    places = [report.longrepr for report in skips]
    reasons = {
        str(place[-1] if isinstance(place, tuple | list) else place).removeprefix("Skipped: ") for place in places
    }
    if unlisted := {reason for reason in reasons if not any(re.fullmatch(each, reason) for each in allowed)}:
        reporter.ensure_newline()
        reporter.write_line(f"skipped for reasons that tests/skips.txt does not have: {sorted(unlisted)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.fixture(scope="session", autouse=True)
def _data_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Recordings in the default folder of whoever runs the tests are neither read nor written."""
    with pytest.MonkeyPatch.context() as during:
        for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
            during.setenv(name, str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _loop_has_run() -> None:
    """Let libuv take the pipe that it keeps for the life of the process, so that no test is blamed for it."""
    new_loop().close()


@pytest.fixture(scope="session", autouse=True)
def _arrow_has_run() -> None:
    """Let Arrow take what it keeps for the life of the process, so that no test is blamed for it.

    Its cancellable readers keep a pipe for Ctrl-C, Flight's first read another. Only where a test module imports them:
    nobody else waits for them to load.
    """
    if arrow := sys.modules.get("pyarrow"):
        importlib.import_module("pyarrow.csv").read_csv(arrow.BufferReader(b"a\n1\n"))
    if flight := sys.modules.get("pyarrow.flight"):
        arrow = sys.modules["pyarrow"]
        stream = flight.RecordBatchStream(arrow.table({"a": [1]}))
        warm = type("Warm", (flight.FlightServerBase,), {"do_get": lambda *_: stream})("grpc://127.0.0.1:0")
        with warm, flight.connect(f"grpc://127.0.0.1:{warm.port}") as client:
            client.do_get(flight.Ticket(b"")).read_all()


@pytest.fixture(scope="session", autouse=True)
def _boards_are_forked() -> Iterator[None]:
    """Simulated boards start at once, except those of servers in a process of their own, and in `tests/simulator`."""
    with commands.forked_boards():
        yield


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Undo what a test that runs the command line does to the log: its terminal ends with the test."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves descriptors, threads or processes behind.

    A test that failed is not asked: its traceback keeps alive what it had open.
    """
    before = held()
    yield
    if request.node.stash.get(_passed, False) and (lines := leaked(before)):
        pytest.fail("\n  ".join(["the test left behind:", *lines]))


@pytest.fixture
def microbit() -> Iterator[str]:
    """The URL of a micro:bit that was just switched on."""
    with running_target(targets.microbit()) as url:
        yield url


@pytest.fixture
def webassembly() -> Iterator[str]:
    """The URL of the WebAssembly VM as it is: it never comes back from a request for raw paste."""
    with running_target(targets.webassembly()) as url:
        yield url


@pytest.fixture
def webassembly_without_raw_paste() -> Iterator[str]:
    """The URL of the WebAssembly VM behind a driver that says that it has no raw paste."""
    with running_target(targets.webassembly(refuse_raw_paste=True)) as url:
        yield url


@pytest.fixture
def webassembly_before_raw_paste() -> Iterator[str]:
    """The URL of the WebAssembly VM behind a driver that answers as firmware did before there was raw paste."""
    with running_target(targets.webassembly(unknown_raw_paste=True)) as url:
        yield url


@pytest.fixture
def unix_port() -> Iterator[str]:
    """The URL of the unix port, with files of its own."""
    with running_target(targets.unix_port()) as url:
        yield url


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    """A disk of 1 MB, or of the bytes that `request.param` says.

    Containers need not allow to mount one: then the test is skipped, also with `CI` set.
    """
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(SmallDisk(tmp_path / "disk", getattr(request, "param", 1024 * 1024)))
        except TargetMissing as missing:
            pytest.skip(str(missing))
        yield disk


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a browser."""
    with _named_where_missing():
        return browser.chromium()


@pytest.fixture(scope="session")
def nginx() -> str:
    """The path of nginx."""
    with _named_where_missing():
        found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if found is None:
            raise TargetMissing("nginx", "it is not installed", "Install Debian's nginx")
    return found


@pytest.fixture(scope="session")
def mosquitto() -> str:
    """The path of the MQTT broker mosquitto."""
    return _program("mosquitto", "mosquitto")


@pytest.fixture(scope="session")
def influxd() -> str:
    """The path of the InfluxDB server."""
    return _program("influxd", "influxdb")


def _program(name: str, package: str) -> str:
    with _named_where_missing():
        found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
        if found is None:
            raise TargetMissing(name, "it is not installed", f"Install Debian's {package}")
    return found


@contextmanager
def running_target(target: AbstractContextManager[str]) -> Iterator[str]:
    """Give the target's URL. Where it is not installed, skip by name; fail instead with `CI` set."""
    with ExitStack() as stack:
        with _named_where_missing():
            url = stack.enter_context(target)
        yield url


def in_ci() -> bool:
    """Whether a missing target is a failure."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


@contextmanager
def _named_where_missing() -> Iterator[None]:
    try:
        yield
    except TargetMissing as missing:
        if in_ci():
            pytest.fail(str(missing))
        pytest.skip(str(missing))
