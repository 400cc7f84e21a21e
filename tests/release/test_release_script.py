"""`.ci/release` refuses to build what is not ready, and says what to do. What it builds is checked next door."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import fastflight

ROOT = Path(__file__).parents[2]
HEADING = f"## {fastflight.__version__} - 2026-01-31"
COPIED = (".ci/release", "pyproject.toml", "fastflight/__init__.py")


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that is ready, with the files that the checks read."""
    for name in COPIED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/CHANGELOG.md").write_text(f"## Unreleased\n\n{HEADING}\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")


def run(folder: Path) -> str:
    """Run the script with a PATH that has no `uv`, so that it ends after the checks at the latest."""
    path = folder.parent / f"{folder.name}-path"
    path.mkdir()
    for tool in ("bash", "cat", "date", "dirname", "env", "git", "grep", "sed"):
        (path / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool}"))
    done = subprocess.run(
        [folder / ".ci/release"], env={"PATH": str(path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_a_repository_that_is_ready_passes_the_checks(repository: Path) -> None:
    output = run(repository)
    assert f"version {fastflight.__version__}\n" in output and "uv" in output.splitlines()[-1]


def test_changes_that_are_not_committed(repository: Path) -> None:
    (repository / "new").touch()
    assert "not committed. Commit or remove them" in run(repository)


def test_a_version_that_is_tagged_already(repository: Path) -> None:
    git(repository, "tag", f"v{fastflight.__version__}")
    assert "Raise the version in pyproject.toml" in run(repository)


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("docs/CHANGELOG.md", HEADING, "", "Put it below '## Unreleased'"),
        ("fastflight/__init__.py", fastflight.__version__, "9.9.9", "has another version than pyproject.toml"),
    ],
)
def test_a_version_that_differs(repository: Path, name: str, old: str, new: str, says: str) -> None:
    file = repository / name
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    commit(repository)
    assert says in run(repository)
