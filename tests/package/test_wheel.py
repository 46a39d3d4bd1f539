"""What is shipped is what is tested: the wheel, its files, and the program as a stranger installs and runs it.

The wheel is built from a copy of the checkout, directly and by way of a source distribution, and installed with the
lock into an environment of its own, `.venv-wheel`, that knows nothing of the checkout. The environment is made anew
when the lock, the requirements or the interpreter have changed; otherwise only the wheel in it is replaced, without
network.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

from stream_dp.version import __version__

pytestmark = [pytest.mark.package, pytest.mark.slow]

CHECKOUT = Path(__file__).parents[2]
ENVIRONMENT = CHECKOUT / ".venv-wheel"
DIST_INFO = f"stream_dp-{__version__}.dist-info"
Program = Callable[..., subprocess.CompletedProcess[str]]


def run(
    *command: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout without what git ignores: stale build output would find its way into a wheel."""
    copy = tmp_path_factory.mktemp("source") / "stream-dp"
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", folder=CHECKOUT).stdout
    for name in filter(None, listed.split("\0")):
        original, target = CHECKOUT / name, copy / name
        if original.is_symlink() or original.exists():  # a deleted file is listed until the deletion is committed
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(original, target, follow_symlinks=False)
    return copy


def build_wheel(source: Path, folder: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "--quiet", "wheel")
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source, folder=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel_by_way_of_sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("by-way-of-sdist")
    build = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, folder, folder=source)
    (sdist,) = folder.glob("*.tar.gz")
    return build_wheel(sdist, folder)


@pytest.fixture(scope="session")
def wheel(source: Path, wheel_by_way_of_sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built directly, behind the source distribution: a wheel's build leaves its files in the copy."""
    assert wheel_by_way_of_sdist.exists()
    return build_wheel(source, tmp_path_factory.mktemp("direct"))


@pytest.fixture(scope="session")
def installed(wheel: Path) -> Iterator[Path]:
    """The folder of programs of an environment that holds the wheel with `[demo]`, at the versions of the lock."""
    programs, made_from = ENVIRONMENT / "env" / "bin", ENVIRONMENT / "made-from"
    digest = hashlib.sha256(f"{sys.version} {sys.executable}".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((CHECKOUT / name).read_bytes())
    pip = (programs / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    ENVIRONMENT.mkdir(exist_ok=True)
    with (ENVIRONMENT / "lock").open("w") as lock:  # another run of the tests waits until this one is done with it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made_from.exists() and made_from.read_text() == digest.hexdigest():
            run(*pip, "--no-deps", "--no-index", "--force-reinstall", wheel, folder=ENVIRONMENT, environment=outside())
        else:
            made_from.unlink(missing_ok=True)
            run(sys.executable, "-m", "venv", "--clear", ENVIRONMENT / "env", folder=ENVIRONMENT)
            wanted = f"stream-dp[demo] @ {wheel.as_uri()}"
            run(*pip, "-c", CHECKOUT / "constraints.txt", wanted, folder=ENVIRONMENT, environment=outside())
            made_from.write_text(digest.hexdigest())
        yield programs


def outside(**settings: str) -> dict[str, str]:
    """The environment variables of this process without those that could lead Python back to the checkout."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {**inherited, **settings}


@pytest.fixture
def program(installed: Path, tmp_path: Path) -> Program:
    """Runs a program of the environment from an empty folder, with a home of its own, on the embedded log."""

    def call(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        assert not tmp_path.is_relative_to(CHECKOUT)
        home = str(tmp_path)
        settings = outside(HOME=home, STREAM_DP_CACHE=home, STREAM_DP_BROKER="memory://", COLUMNS="120")
        return run(installed / name, *words, folder=tmp_path, environment=settings)

    return call


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(source: Path, wheel: Path) -> None:
    written = {
        f"{name}/{file.relative_to(source / folder).as_posix()}": file.read_bytes()
        for folder, name in (("stream_dp", "stream_dp"), ("agents", "stream_dp/agents"))
        for file in (source / folder).rglob("*")
        if file.is_file()
    }
    assert {
        "stream_dp/agents/__init__.py",
        "stream_dp/py.typed",
        "stream_dp/runtime/localkafka/pom.xml",
    } < written.keys()

    found = contents(wheel)
    metadata = {name for name in found if name.startswith(f"{DIST_INFO}/")}
    assert f"{DIST_INFO}/licenses/LICENSE" in metadata
    drawing = [line for line in found[f"{DIST_INFO}/METADATA"].decode().splitlines() if "matplotlib" in line]
    assert len(drawing) == 1, "only pictures of plan are drawn"
    assert drawing[0].endswith('; extra == "figures"'), "and nobody else installs what draws them"
    assert {name: data for name, data in found.items() if name not in metadata} == written


def test_the_source_distribution_leads_to_the_same_wheel(wheel: Path, wheel_by_way_of_sdist: Path) -> None:
    record = f"{DIST_INFO}/RECORD"  # lists the others, in the order in which they were added
    direct, by_way_of_sdist = contents(wheel), contents(wheel_by_way_of_sdist)

    assert sorted(direct.pop(record).splitlines()) == sorted(by_way_of_sdist.pop(record).splitlines())
    assert direct == by_way_of_sdist


def test_what_is_installed_lies_in_the_package_and_its_metadata(program: Program) -> None:
    ask = "import importlib.metadata, json; print(json.dumps([str(f) for f in importlib.metadata.files('stream-dp')]))"
    files = [PurePosixPath(name) for name in json.loads(program("python", "-c", ask).stdout)]

    assert {file.parts[0] for file in files if file.parts[0] != ".."} == {"stream_dp", DIST_INFO}
    assert [file.parts[-2:] for file in files if file.parts[0] == ".."] == [("bin", "stream-dp")]


def test_the_package_is_imported_from_the_environment_and_agents_from_the_package(
    program: Program, installed: Path
) -> None:
    ask = (
        "import importlib.util as u, json, stream_dp, stream_dp.agents as a; "
        "print(json.dumps([stream_dp.__file__, a.__file__, sorted(a.AGENTS), "
        "[name for name in ('agents', 'tests', 'deploy', 'experiments') if u.find_spec(name)]]))"
    )
    package, agents, names, beside = json.loads(program("python", "-c", ask).stdout)

    assert Path(package).is_relative_to(installed.parent)
    assert Path(agents) == Path(package).parent / "agents" / "__init__.py"
    assert names == ["control", "ingest", "merge", "release", "sharpen"]
    assert beside == [], "top-level modules that the wheel must not bring"


def test_the_environment_holds_the_versions_of_the_lock_and_misses_nothing(program: Program) -> None:
    lock = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {line for line in lock.splitlines() if not line.startswith("#")}
    frozen = program("python", "-m", "pip", "freeze").stdout.splitlines()

    assert [line for line in frozen if line not in pinned and not line.startswith("stream-dp @ ")] == []
    assert "No broken requirements" in program("python", "-m", "pip", "check").stdout


def test_the_installed_program_tells_its_version(program: Program) -> None:
    assert program("stream-dp", "--version").stdout == f"stream-dp, version {__version__}\n"


def test_the_installed_program_checks_the_configuration_of_the_documents(program: Program, tmp_path: Path) -> None:
    text = (CHECKOUT / "docs" / "configuration.md").read_text(encoding="utf-8")
    example = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "flights.yaml").write_text(example, encoding="utf-8")

    assert program("stream-dp", "check", "flights.yaml").stdout.startswith(
        "flights: 1 warning, 2 views, 4 partitions, broker "
    )


def test_the_installed_demo_releases_a_year_on_the_embedded_log(program: Program, tmp_path: Path) -> None:
    told = json.loads(program("stream-dp", "demo", "--pace", "0", "--json").stdout)

    assert told["broker"] == "memory://"
    assert told["records"] > 0
    assert Path(told["configuration"]).is_relative_to(tmp_path)
