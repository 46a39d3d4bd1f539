"""What tests of commands on an application share."""

from __future__ import annotations

from tests.support.published import call  # noqa: F401 - a fixture
