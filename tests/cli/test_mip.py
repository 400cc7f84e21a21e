"""`mip install` from folders and from an index by HTTP, and packages that are refused."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fastflight.cli.mpy import MpyFormat, check_mpy
from fastflight.cli.packages import read_packages
from fastflight.errors import FastFlightError

Run = Callable[..., Result]

SOURCE = b"V = 1\n"
# `V = 7`, compiled by mpy-cross 1.29.
COMPILED = bytes.fromhex("4d06001f030010736576656e2e707900 0f025600400002018716025163")


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files, and redirects `/moved/...` to another computer."""

    def log_message(self, *_: object) -> None:
        """Do nothing."""

    def do_GET(self) -> None:
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", "http://192.0.2.1/")
            self.end_headers()
        else:
            super().do_GET()


class Index:
    """An index in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, number: str = "latest", **description: Any) -> None:
        path = self.folder / "package" / "py" / name / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(description))

    def store(self, content: bytes) -> str:
        """Store a file, and return the digits that name it."""
        digits = hashlib.sha256(content).hexdigest()[:8]
        path = self.folder / "file" / digits[:2] / digits
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return digits


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.chdir(tmp_path)
    index = Index(tmp_path / "index")
    index.add("one", hashes=[["one/__init__.py", index.store(SOURCE)]], deps=[["two", "2.0"]], version="1.0")
    index.add("two", "2.0", hashes=[["two.py", index.store(b"W = 2\n")]], deps=[["one", "latest"]])
    return index


@pytest.fixture
def url(index: Index) -> Iterator[str]:
    handler = partial(QuietHandler, directory=str(index.folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_package_comes_with_those_that_it_needs(run: Run, index: Index) -> None:
    result = run("mip", "install", "one", "demo", "--index", "index", "--target", "/lib-a", "--json")
    assert json.loads(result.stdout)["files"] == ["one/__init__.py", "two.py"]
    assert run("mip", "install", "one@latest", "demo", "--index", "index", "--target", "/lib-a").stdout == (
        "demo:/lib-a: 2 unchanged\n"
    )
    code = "import sys; sys.path.append('/lib-a'); import one, two; print(one.V + two.W)"
    assert run("exec", "demo", code).stdout == "3\n"
    run("rm", "-r", "-y", "demo:/lib-a")


def test_from_an_index_by_http(run: Run, url: str) -> None:
    assert read_packages("one", url) == {"one/__init__.py": SOURCE, "two.py": b"W = 2\n"}
    with pytest.raises(FastFlightError, match="302"):
        read_packages("one", f"{url}/moved")


def test_a_folder_with_package_json(run: Run, index: Index, tmp_path: Path) -> None:
    (tmp_path / "mine" / "src").mkdir(parents=True)
    (tmp_path / "mine" / "src" / "m.py").write_bytes(SOURCE)
    (tmp_path / "mine" / "package.json").write_text(json.dumps({"urls": [["m.py", "src/m.py"]], "deps": []}))
    assert read_packages("mine", None) == read_packages("mine/package.json", None) == {"m.py": SOURCE}
    result = run("mip", "install", "mine", "demo", "--target", "lib-b")
    assert result.stdout == "demo:/lib-b: 1 file, 6 B written\n"
    run("rm", "-r", "-y", "demo:/lib-b")


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ({"urls": [["a.py", "https://example.invalid/a.py"]]}, "from elsewhere"),
        ({"urls": [["a.py", "github:me/a/a.py"]]}, "from elsewhere"),
        ({"urls": [["a.py", "../../secret"]]}, "from elsewhere"),
        ({"urls": [["a.py", "link"]]}, "leads out"),
        ({"urls": [["../a.py", "a.py"]]}, "library folder"),
        ({"urls": [["/main.py", "a.py"]]}, "library folder"),
        ({"hashes": [["a.py", "0" * 8]]}, "no such file"),
        ({"hashes": [["a.py", "bad"]]}, "not what the package says"),
        ({"urls": [["a.py"]]}, "list of pairs"),
        ({"deps": [["nothing", "latest"]]}, "no such file"),
        ([], "not an object"),
    ],
)
def test_what_is_refused(index: Index, tmp_path: Path, description: Any, reason: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (index.folder / "a.py").write_bytes(SOURCE)
    (index.folder / "link").symlink_to(tmp_path / "secret")
    (index.folder / "file" / "ba").mkdir(parents=True, exist_ok=True)
    (index.folder / "file" / "ba" / "bad").write_bytes(SOURCE)
    index.add("evil")
    (index.folder / "package" / "py" / "evil" / "latest.json").write_text(json.dumps(description))
    with pytest.raises(FastFlightError, match=reason):
        read_packages("evil", str(index.folder))


def test_without_an_index_nothing_is_contacted(run: Run, index: Index) -> None:
    result = run("mip", "install", "one", "demo")
    assert result.exit_code == 1 and "--index" in result.stderr


def wheel(path: Path, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def test_modules_of_this_computer(run: Run, index: Index, tmp_path: Path) -> None:
    for path in ("pack/__init__.py", "pack/deep/a.py", "pack/__pycache__/a.py", "pack/notes.txt", "two/b.py", "c.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(SOURCE)
    wheel(
        tmp_path / "w-1.0-py3-none-any.whl",
        {"w/__init__.py": SOURCE, "w/py.typed": b"", "w-1.0.dist-info/x.py": b"", "w-1.0.data/scripts/y.py": b""},
    )
    assert set(read_packages("pack", None)) == {"pack/__init__.py", "pack/deep/a.py"}
    assert read_packages("./two/", "index") == {"b.py": SOURCE}
    assert read_packages("c.py", None) == {"c.py": SOURCE}
    assert read_packages("w-1.0-py3-none-any.whl", None) == {"w/__init__.py": SOURCE}
    assert run("mip", "install", "w-1.0-py3-none-any.whl", "demo", "--target", "/lib-c").exit_code == 0
    assert run("exec", "demo", "import sys; sys.path.append('/lib-c'); import w; print(w.V)").stdout == "1\n"
    run("rm", "-r", "-y", "demo:/lib-c")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("evil.whl", "library folder"),
        ("large.whl", "may have"),
        ("broken.whl", "no wheel"),
        ("empty", "no modules"),
        ("none.py", "no such package"),
    ],
)
def test_packages_of_this_computer_that_are_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.whl").write_bytes(b"PK\x03\x04 and no more")
    wheel(tmp_path / "evil.whl", {"../evil.py": SOURCE})
    wheel(tmp_path / "large.whl", {"large.py": bytes(5 << 20)})
    with pytest.raises(FastFlightError, match=reason):
        read_packages(str(tmp_path / name), None)


def test_compiled_modules_that_the_board_cannot_load_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "seven.mpy").write_bytes(COMPILED)
    result = run("mip", "install", str(tmp_path / "seven.mpy"), "demo")
    assert result.exit_code == 1 and "loads no compiled modules" in result.stderr
    assert run("ls", "demo:/lib").exit_code == 1


@pytest.mark.parametrize(
    ("header", "board", "reason"),
    [
        ("4d06001f", 0x306, None),
        ("4d06021f", 0x2B06, None),  # byte code of another sub-version
        ("4d062b1f", 0x2B06, None),
        ("4d05001f", 0x306, "version 5; the board loads version 6"),
        ("4d062b1f", 0x306, "version 6.3, xtensawin; the board loads version 6"),
        ("4d062a1f", 0x2B06, "version 6.2, xtensawin; the board loads version 6.3, xtensawin"),
        ("4d06ff1f", 0x2B06, "architecture 63"),
        ("4d06", 0x306, "no compiled module"),
        ("5006001f", 0x306, "no compiled module"),
    ],
)
def test_the_format_of_compiled_modules(header: str, board: int, reason: str | None) -> None:
    with nullcontext() if reason is None else pytest.raises(FastFlightError, match=reason):
        check_mpy("a.mpy", bytes.fromhex(header), MpyFormat.of_board(board))


@pytest.mark.firmware
def test_compiled_modules_on_the_real_vm(run: Run, index: Index, webassembly_without_raw_paste: str) -> None:
    board = f"--device={webassembly_without_raw_paste}"
    path = index.folder / "package" / "6" / "seven" / "latest.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"hashes": [["seven.mpy", index.store(COMPILED)]], "version": "1"}))
    # Commands of a chain share one connection: the VM starts again for each.
    install = ("mip", "install", "seven", board, "--index", "index", "--mpy", "--target", "/lib")
    assert run(*install, "+", "exec", "import seven; print(seven.V)", board).stdout.splitlines()[-1] == "7"
    wrong = Path("wrong.mpy")
    wrong.write_bytes(b"M\x05" + COMPILED[2:])
    result = run("mip", "install", str(wrong), board)
    assert result.exit_code == 1 and "version 5; the board loads version 6" in result.stderr
