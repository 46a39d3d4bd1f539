"""What packages export exists and is documented, and costs nobody an import that is not needed."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stream_dp import accounting, lossless, select
from stream_dp.lossless import families

PAGE = (Path(__file__).parents[3] / "docs" / "lossless.md").read_text(encoding="utf-8")
LIBRARY = [lossless, families]


def exports(*packages: ModuleType) -> pytest.MarkDecorator:
    pairs = [(package, name) for package in packages for name in package.__all__]
    return pytest.mark.parametrize(("package", "name"), pairs, ids=[f"{p.__name__}.{name}" for p, name in pairs])


@exports(*LIBRARY, select, accounting)
def test_an_exported_name_exists_and_says_what_it_is(package: ModuleType, name: str) -> None:
    exported = getattr(package, name)

    assert not inspect.ismodule(exported), "a module of that name hides what is meant"
    if inspect.isclass(exported) or inspect.isfunction(exported):
        written = vars(exported).get("__doc__") if inspect.isclass(exported) else exported.__doc__
        assert written
        assert not written.startswith(f"{name}("), "the docstring is what `dataclass` makes up"


@exports(*LIBRARY)
def test_the_library_says_what_each_exported_name_is_for(package: ModuleType, name: str) -> None:
    assert re.search(rf"`{name}\b", package.__doc__ or ""), "it is missing in the docstring of its package"
    assert re.search(rf"`{name}\b", PAGE), "it is missing in docs/lossless.md"


def test_every_family_is_exported() -> None:
    folder = Path(families.__file__).parent
    text = "".join(file.read_text(encoding="utf-8") for file in folder.glob("*.py"))
    classes = {name for name in families.__all__ if inspect.isclass(getattr(families, name))}

    assert set(re.findall(r"^class ([A-Z]\w*)", text, re.MULTILINE)) - {"Marks"} == classes, "Marks is a reading"


def test_the_library_is_imported_without_numpy() -> None:
    program = "import sys, stream_dp.lossless.families; sys.exit('numpy' in sys.modules)"

    subprocess.run([sys.executable, "-c", program], check=True)
