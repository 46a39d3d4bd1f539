"""The repository holds no stray files and tracks nothing that is ignored."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]

ROOT = {
    ".ci",
    ".dockerignore",
    ".editorconfig",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "agents",
    "constraints.txt",
    "deploy",
    "docs",
    "experiments",
    "mkdocs.yml",
    "pyproject.toml",
    "stream_dp",
    "tests",
}
"""Every file and folder of the root."""


def git(*words: str, given: str = "") -> list[str]:
    """What git prints, split at its NUL bytes."""
    if not (CHECKOUT / ".git").exists():
        pytest.skip("not a checkout of git")
    done = subprocess.run(["git", *words], cwd=CHECKOUT, input=given, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return list(filter(None, done.stdout.split("\0")))


def test_the_root_holds_what_is_listed_and_nothing_else() -> None:
    assert {name.split("/")[0] for name in git("ls-files", "-z")} == ROOT


def test_the_only_link_is_that_of_the_agents() -> None:
    entries = [entry.split("\t") for entry in git("ls-files", "-z", "--stage")]

    assert [name for attributes, name in entries if attributes.startswith("120000")] == ["stream_dp/agents"]
    assert (CHECKOUT / "stream_dp" / "agents").resolve() == CHECKOUT / "agents"


def test_no_tracked_file_is_one_that_git_should_ignore() -> None:
    assert git("ls-files", "-z", "--cached", "--ignored", "--exclude-standard") == []


@pytest.mark.parametrize(
    "name",
    [
        "stream_dp-0.1.0-py3-none-any.whl",
        "tests/some.whl",
        "stream_dp-0.1.0.tar.gz",
        "dist/stream_dp-0.1.0.tar.gz",
        "build/lib/stream_dp/__init__.py",
        "stream_dp.egg-info/PKG-INFO",
        "stream_dp/__pycache__/version.cpython-311.pyc",
        ".venv/bin/python",
        ".venv-3.12/bin/python",
        ".venv-wheel/env/bin/python",
        ".mypy_cache/x",
        ".ruff_cache/x",
        ".pytest_cache/x",
        ".hypothesis/x",
        ".import_linter_cache/x",
        "state/x",
        "flights.key",
        "reproduced/topk.png",
    ],
)
def test_what_is_built_or_made_by_running_is_ignored(name: str) -> None:
    assert git("check-ignore", "-z", "--no-index", "--stdin", given=f"{name}\0") == [name]


@pytest.mark.parametrize(
    "name", ["agents/__init__.py", "deploy/compose.yaml", "docs/build.md", "tests/package/test_wheel.py"]
)
def test_what_is_written_by_hand_is_not_ignored(name: str) -> None:
    assert git("check-ignore", "-z", "--no-index", "--stdin", given=f"{name}\0") == []


def sources() -> list[Path]:
    """Every module of the package, and of the agents."""
    return [
        CHECKOUT / name
        for name in git("ls-files", "-z", "stream_dp/*.py", "agents/*.py")
        if Path(name).name not in ("__init__.py", "__main__.py")
    ]


def test_no_two_modules_have_one_name() -> None:
    names = Counter(file.name for file in sources())

    assert [name for name, times in names.items() if times > 1] == []


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        part.name
        for file in sources()
        for part in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(part, ast.ClassDef)
    )

    assert [name for name, times in names.items() if times > 1] == []
