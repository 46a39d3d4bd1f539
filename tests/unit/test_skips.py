"""`--no-skips` fails a run that leaves tests out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = """
import pytest

def test_skips_for_want_of_a_program():
    pytest.skip("no program")

@pytest.mark.skipif(True, reason="no program")
def test_is_marked():
    pass

@pytest.fixture
def program():
    pytest.skip("no program")

def test_wants_a_fixture(program):
    pass

def test_wants_unpublished_data():
    pytest.skip("no published tables: no folder")

@pytest.mark.xfail
def test_has_a_known_fault():
    assert False
"""
FILE = """
import pytest

pytest.importorskip("no_such_package")
"""


def run(folder: Path, *options: str) -> str:
    (folder / "conftest.py").symlink_to(CONFTEST)
    (folder / "test_some.py").write_text(TESTS)
    (folder / "test_file.py").write_text(FILE)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", *options]
    environment = {"PYTHONPATH": str(CONFTEST.parents[1])}
    done = subprocess.run([*command, folder], capture_output=True, text=True, check=False, env=environment)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ((), "5 skipped, 1 xfailed"),
        (("--no-skips", "--continue-on-collection-errors"), "1 failed, 1 skipped, 1 xfailed, 3 errors"),
    ],
)
def test_missing_program_fails_where_asked(tmp_path: Path, options: tuple[str, ...], outcome: str) -> None:
    assert run(tmp_path, *options).startswith(outcome)
