"""A small application, and records as its topics would have them."""

from tests.support.published import call, log, refusal, release, visits, visits_file  # noqa: F401 - fixtures
