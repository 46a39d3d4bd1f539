"""CONTRIBUTING.md, pyproject.toml, the Makefile and the pre-commit hooks say the same."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from stream_dp.runtime.localkafka import jars

CHECKOUT = Path(__file__).parents[3]
CONTRIBUTING = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAKEFILE = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))


def claimed_versions() -> list[str]:
    """The Python versions of the classifiers, in order."""
    prefix = "Programming Language :: Python :: "
    return [entry.removeprefix(prefix) for entry in PYPROJECT["project"]["classifiers"] if entry.startswith(prefix)]


def words(versions: list[str]) -> str:
    return f"{', '.join(versions[:-1])} and {versions[-1]}"


def test_the_claimed_python_versions_are_the_same_everywhere() -> None:
    versions = claimed_versions()
    first, last = versions[0], versions[-1]
    beyond = f"3.{int(last.removeprefix('3.')) + 1}"

    assert versions == [f"3.{minor}" for minor in range(int(first[2:]), int(last[2:]) + 1)]
    assert PYPROJECT["project"]["requires-python"] == f">={first},<{beyond}"
    assert f"Python {words(versions)} are supported" in CONTRIBUTING
    assert f"\nPYTHONS ?= {' '.join(f'python{version}' for version in versions)}\n" in MAKEFILE
    low, high = (f"(3, {version[2:]})" for version in (first, last))
    assert f"{low} <= sys.version_info[:2] <= {high}" in MAKEFILE


def test_the_kafka_versions_are_the_same_everywhere() -> None:
    (versions,) = re.findall(r"^KAFKAS \?= (.*)$", MAKEFILE, re.MULTILINE)
    tested = versions.split()

    assert tested[0] == jars.OLDEST_KAFKA_VERSION
    assert tested[-1] == jars.KAFKA_VERSION
    assert f"on a local Kafka {', '.join(tested[:-1])} and {tested[-1]}." in CONTRIBUTING


def test_the_linters_read_the_code_as_the_oldest_claimed_python() -> None:
    oldest = claimed_versions()[0]

    assert PYPROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"


def test_the_hooks_run_the_parts_of_make_lint_and_fetch_nothing() -> None:
    (parts,) = re.findall(r"^lint: (.*)$", MAKEFILE, re.MULTILINE)
    (repository,) = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]

    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == [f"make {part}" for part in parts.split()]
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}


@pytest.mark.parametrize(
    ("there", "code", "said"),
    [
        ({}, 2, "pythons: none of"),
        ({"good": 0}, 0, "pythons: passed: good"),
        ({"good": 0, "bad": 1}, 2, "pythons: failed: bad"),
    ],
)
def test_only_an_installed_python_can_fail(tmp_path: Path, there: dict[str, int], code: int, said: str) -> None:
    for name in there:
        write_script(tmp_path / name, f"echo {name}")
    quick = " ".join(f"*=.venv-{name}*) exit {status};;" for name, status in there.items())
    make = write_script(tmp_path / "quick", f'case "$*" in {quick} esac; exit 9')
    pythons = " ".join([str(tmp_path / name) for name in there] + ["no-such-python"])

    done = subprocess.run(
        ["make", "pythons", f"PYTHONS={pythons}", f"MAKE={make}"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code
    assert "pythons: skipped: no-such-python is not installed" in done.stdout
    assert said in done.stdout + done.stderr


def write_script(file: Path, text: str) -> Path:
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_continuous_integration_runs_the_ordinary_tests_and_the_slow_ones() -> None:
    run = (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8")

    assert re.findall(r"^(?:exec )?make (\w+)", run, re.MULTILINE) == ["test", "slow", "pythons"]
    assert run.count("TEST_ARGS=--no-skips") == 2
    assert "Continuous integration runs `.ci/run`: `make test`, `make slow`, then" in CONTRIBUTING


def test_every_marker_and_every_folder_of_tests_is_explained() -> None:
    markers = [entry.split(":")[0] for entry in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]]
    folders = [file.name for file in (CHECKOUT / "tests").iterdir() if file.is_dir() and file.name != "__pycache__"]

    assert [marker for marker in markers if f"\n| `{marker}` | " not in CONTRIBUTING] == []
    assert [folder for folder in folders if f"`tests/{folder}`" not in CONTRIBUTING] == []


def test_the_files_that_are_begun_first_exist() -> None:
    tests = CHECKOUT / "tests"
    (listed,) = re.findall(r"^LONG = \((.*?)^\)", (tests / "conftest.py").read_text(encoding="utf-8"), re.M | re.S)
    files = re.findall(r'"(.*?)"', listed)

    assert files
    assert [file for file in files if not (tests / file).is_file()] == []
