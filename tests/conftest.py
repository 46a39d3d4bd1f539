"""What pipeline and broker tests share: one real Kafka for all of them, and a small application to run on it."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.support")  # so that what is asserted there says what it found

from stream_dp.config.access import MEMORY
from stream_dp.runtime.localkafka import broker as localkafka
from stream_dp.runtime.localkafka import jars
from stream_dp.testing import Application, application
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.visits import configuration, new_name

# How fast an example is made and runs is the machine's affair.
settings.register_profile("stream-dp", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stream-dp")


HERE = Path(__file__).parent
KAFKA_FOLDER = "STREAM_DP_TESTS_KAFKA"


IN_MEMORY = Path("/dev/shm")
IN_MEMORY_BYTES = 4 << 30
"""Free bytes that it has to have: most of it stays free, unless a test writes a lot."""


def _temporary() -> Path:
    """The folder for what tests write: in memory, where databases are made ten times as fast as on a disk."""
    default = Path(tempfile.gettempdir())
    if "TMPDIR" in os.environ or not os.access(IN_MEMORY, os.R_OK | os.W_OK | os.X_OK):
        return default
    about = os.statvfs(IN_MEMORY)
    is_fit = about.f_bavail * about.f_frsize >= IN_MEMORY_BYTES and not about.f_flag & os.ST_NOEXEC
    return IN_MEMORY if is_fit else default


MAY_BE_MISSING = ("no published tables",)
"""Reasons to skip that no installation removes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let continuous integration refuse a run that leaves tests out."""
    parser.addoption("--no-skips", action="store_true", help="fail where a test skips because of what is not installed")


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport, config: pytest.Config) -> None:
    if not config.getoption("no_skips") or not report.skipped or hasattr(report, "wasxfail"):
        return
    assert isinstance(report.longrepr, tuple)
    file, line, reason = report.longrepr
    if reason.removeprefix("Skipped: ").startswith(MAY_BE_MISSING):
        return
    report.outcome = "failed"
    report.longrepr = f"{file}:{line}: {reason}: a skipped test fails under --no-skips"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test into a failed one if the run asks for it."""
    report = yield
    _fail_if_skipped(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a skipped file into a failed one if the run asks for it."""
    report = yield
    _fail_if_skipped(report, collector.config)
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Name the folder of the Kafka that all processes of a run share: the first that needs it starts it."""
    gc.disable()  # until everything is collected: what is found stays
    if KAFKA_FOLDER in os.environ:
        return
    temporary = _temporary()
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(temporary))
    folder = Path(tempfile.mkdtemp(prefix="stream-dp-tests-", dir=temporary))
    os.environ[KAFKA_FOLDER] = str(folder)
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")  # minutes are too few for more to pay off

    def remove() -> None:
        localkafka.stop(folder)
        shutil.rmtree(folder)
        del os.environ[KAFKA_FOLDER]

    config.add_cleanup(remove)


@pytest.fixture(scope="session")
def kafka_folder() -> Path:
    """The state folder of this run's local Kafka."""
    return Path(os.environ[KAFKA_FOLDER])


@pytest.fixture(scope="session")
def kafka(kafka_folder: Path) -> str:
    """The address of the cluster of STREAM_DP_BROKER, else of a local one. Tests use topics of their own."""
    external = localkafka.external_broker()
    if external is not None:
        return external
    if (problem := jars.local_kafka_problem()) is not None:
        pytest.skip(f"no broker: {problem}")
    broker = localkafka.start(kafka_folder, ready_within_s=WITHIN_SECONDS)
    assert broker.address is not None
    return broker.address


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.broker)])
def broker(request: pytest.FixtureRequest) -> str:
    """The embedded log, then a real Kafka: a test that takes this runs on both."""
    address: str = MEMORY if request.param == "memory" else request.getfixturevalue("kafka")
    return address


LONG = (
    "broker/test_erasure.py",
    "broker/test_crashes.py",
    "kinds/test_every_kind.py",
    "unit/releases/test_engine_crashes.py",
    "broker/test_secured.py",
    "broker/test_cluster.py",
    "unit/lossless/test_multiple_release.py",
    "broker/test_two_workers.py",
    "broker/test_changed_topics.py",
    "broker/test_outages.py",
    "broker/test_changed_settings.py",
    "broker/test_first_csv.py",
    "unit/windows/test_gaps.py",
    "pipeline/test_wrong_clocks.py",
    "pipeline/test_demo_memory.py",
    "unit/releases/test_engine_periods.py",
)
"""Files that take longest. One that is begun last would leave the other processes idle."""
WAITING = ("broker", "package", "pipeline")
"""Folders whose tests wait for other processes most of the time; those of the others compute."""


def _by_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests for several processes: long files first, then files that wait and files that compute by turns."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path.relative_to(HERE).as_posix(), []).append(item)
    order: dict[str, tuple[int, float]] = {file: (0, LONG.index(file)) for file in LONG if file in files}
    rest = [file for file in files if file not in order]
    for waits in (True, False):
        some = [file for file in rest if file.startswith(WAITING) == waits]
        order |= {file: (1, at / len(some)) for at, file in enumerate(some)}
    return [item for file in sorted(files, key=order.__getitem__) for item in files[file]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests of a file that start workers on both logs one does on Kafka ordinarily, the others are slow.

    Where what is tested does not touch the log, as the file says by `SLOW_ON_KAFKA`, all are.
    """
    if hasattr(config, "workerinput"):  # one of several processes
        items[:] = _by_turns(items)
    seen: set[Path] = set()
    for item in items:
        spec = getattr(item, "callspec", None)
        if spec is not None and spec.params.get("broker") == "kafka" and "launch" in getattr(item, "fixturenames", ()):
            if item.path in seen or getattr(item.module, "SLOW_ON_KAFKA", False):  # type: ignore[attr-defined]
                item.add_marker(pytest.mark.slow)
            seen.add(item.path)


def pytest_collection_finish() -> None:
    """Leave what stays for the whole run, modules and tests, out of the collections of garbage."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def visits() -> Callable[..., str]:
    """The configuration of an application about visits of pages, with some of its text replaced.

    Topics of views and sources carry a name that no other test and no earlier run has on a broker.
    """
    return partial(configuration, new_name())


Launch = Callable[..., Awaitable[Application]]


@pytest.fixture
async def launch(broker: str, tmp_path: Path, visits: Callable[..., str]) -> AsyncIterator[Launch]:
    """Makes the application, with changes to its configuration, on the embedded log or on Kafka; starts no worker."""
    async with AsyncExitStack() as stack:

        async def make(*changes: tuple[str, str]) -> Application:
            return await stack.enter_async_context(application(visits(*changes), tmp_path, broker=broker))

        yield make
