"""Every kind with a ladder of levels, one after the other."""

from __future__ import annotations

import pytest

from tests.kinds.cases import CASES, Case


@pytest.fixture(params=sorted(CASES))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def case(kind: str) -> Case:
    return CASES[kind]
