"""Every registered kind, one after the other."""

from __future__ import annotations

import pytest

from stream_dp.kinds import KINDS
from tests.kinds.cases import CASES, Case


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def case(kind: str) -> Case:
    return CASES[kind]
