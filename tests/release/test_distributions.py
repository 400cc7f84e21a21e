"""The wheel and the source distribution hold what they should, and the wheel works in an environment of its own.

With `DIST=folder`, the files of that folder are checked; `.ci/release` does so with those that are to be uploaded.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from trove_classifiers import classifiers

import fastflight
from tests.support.servers import running

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
UV = Path(sys.executable).with_name("uv")
STEM = f"fastflight_micropython-{fastflight.__version__}"

# Packages whose distribution has another name.
DISTRIBUTIONS: Mapping[str, str] = {
    "nats": "nats-py",
    "google": "protobuf",
    "opentelemetry": "opentelemetry-proto",
    "paho": "paho-mqtt",
    "serial": "pyserial",
    "serial_asyncio": "pyserial-asyncio",
}
# What comes with a requirement, by its own promise.
WITH_OTHERS = {"protobuf", "pydantic-core", "starlette"}
# What callers have already when they call the method that imports it.
OF_CALLERS = {"IPython", "dask", "duckdb", "polars", "torch"}

CLIENT = """
import sys
from fastflight import FastFlightClient
with FastFlightClient(sys.argv[1]) as client:
    print(client.read("demo", "/readings.csv").to_arrow().num_rows)
"""


def sh(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command and return what it prints. It sees nothing of this environment but the paths."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both files. They are built with the `hatchling` of this environment: nothing is fetched."""
    if "DIST" in os.environ:
        return Path(os.environ["DIST"]).resolve()
    folder = tmp_path_factory.mktemp("dist")
    # The wheel is made from the source distribution, which must therefore be complete.
    sh(UV, "build", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable, "-o", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"{STEM}-py3-none-any.whl"


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"{STEM}.dist-info/METADATA").decode())


def package_files() -> set[str]:
    """The files of the package that git knows."""
    return set(sh("git", "ls-files", "fastflight", cwd=ROOT).splitlines())


def test_the_wheel_has_the_package_and_nothing_else(names: set[str]) -> None:
    info = f"{STEM}.dist-info"
    made = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE", "RECORD")}
    assert names == package_files() | made
    assert "fastflight/py.typed" in names


def test_the_source_distribution_has_what_the_wheel_is_made_of(dist: Path) -> None:
    with tarfile.open(dist / f"{STEM}.tar.gz") as archive:
        found = {name.removeprefix(f"{STEM}/") for name in archive.getnames()}
    beside = {"README.md", "LICENSE", "pyproject.toml", "docs/CHANGELOG.md", "PKG-INFO", ".gitignore"}
    assert found == package_files() | beside


def test_the_metadata_say_what_the_project_says(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == (PROJECT["name"], fastflight.__version__)
    assert (metadata["License-Expression"], metadata["License-File"]) == ("MIT", "LICENSE")
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(metadata.get_all("Classifier", [])) <= classifiers


def test_the_modules_import_what_the_metadata_require(metadata: Message) -> None:
    """Every package that the code imports is a requirement, of the wheel or of an extra."""
    required = {re.split(r"[^\w.-]", line)[0] for line in metadata.get_all("Requires-Dist", [])}
    imported = set()
    for path in package_files():
        if path.endswith(".py") and "/device/agent/" not in path:  # which runs on boards
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                imported |= {name.partition(".")[0] for name in names}
    others = imported - sys.stdlib_module_names - {"fastflight"}
    assert {DISTRIBUTIONS.get(name, name).replace("_", "-") for name in others} <= required | WITH_OTHERS | OF_CALLERS


def test_the_wheel_serves_and_reads_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Its requirements come from the lock, and from uv's cache where `uv sync` has left them there."""
    environment = tmp_path / "environment"
    locked = ("--locked", "--no-dev", "--no-install-project", "--quiet", "--python", sys.executable)
    sh(UV, "sync", *locked, cwd=ROOT, UV_PROJECT_ENVIRONMENT=str(environment))
    python = environment / "bin" / "python"
    sh(UV, "pip", "install", "--offline", "--no-deps", "--quiet", "--python", python, wheel, cwd=tmp_path)
    sh(UV, "pip", "check", "--python", python, cwd=tmp_path)  # the requirements in its metadata are met
    program = environment / "bin" / "fastflight"
    assert sh(program, "--version", cwd=tmp_path) == f"fastflight {fastflight.__version__}\n"
    with running(program=(str(program),)) as server:
        assert sh(python, "-c", CLIENT, server.location, cwd=tmp_path) == "10000\n"
        assert "readings.csv" in sh(program, "ls", "demo", "--server", server.location, cwd=tmp_path)
        assert server.end() == 0
