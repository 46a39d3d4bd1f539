"""Records as the topics of a small application would have them."""

from tests.support.published import call, refusal, release, visits, visits_file  # noqa: F401 - fixtures
