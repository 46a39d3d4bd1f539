"""What packages export exists and is documented."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from stream_dp import accounting, client, mechanisms, records


def exports(*packages: ModuleType) -> pytest.MarkDecorator:
    pairs = [(package, name) for package in packages for name in package.__all__]
    return pytest.mark.parametrize(("package", "name"), pairs, ids=[f"{p.__name__}.{name}" for p, name in pairs])


@exports(accounting, client, mechanisms, records)
def test_an_exported_name_exists_and_says_what_it_is(package: ModuleType, name: str) -> None:
    exported = getattr(package, name)

    assert not inspect.ismodule(exported), "a module of that name hides what is meant"
    if inspect.isclass(exported) or inspect.isfunction(exported):
        written = vars(exported).get("__doc__") if inspect.isclass(exported) else exported.__doc__
        assert written
        assert not written.startswith(f"{name}("), "the docstring is what `dataclass` makes up"
