"""What tests of commands on an application, and of settings that change, share."""

from __future__ import annotations

from tests.support.changing import changing  # noqa: F401 - a fixture
from tests.support.published import call  # noqa: F401 - a fixture
