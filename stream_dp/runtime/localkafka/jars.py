"""The jars of Apache Kafka: fetched once by Maven into a cache folder outside the checkout."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

from stream_dp.errors import BrokerError

JAVA_NEEDED = 17
"""Kafka 4 brokers run on Java 17 and newer."""

_INSTALL_JAVA = (
    f"install a Java {JAVA_NEEDED} runtime or newer (Debian: `apt install openjdk-17-jre-headless`; "
    "macOS: `brew install openjdk`), or point JAVA_HOME at one"
)
_INSTALL_MAVEN = "install Maven (Debian: `apt install maven`; macOS: `brew install maven`)"


def java_command() -> str:
    """The `java` to run: the one of `JAVA_HOME` when that is set, else the first on `PATH`.

    Raises:
        BrokerError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else None)  # noqa: PTH118
    if java is None:
        where = f"under JAVA_HOME={home}" if home else "on PATH"
        raise BrokerError(f"Java was not found {where}: {_INSTALL_JAVA}")
    return java


def java_problem() -> str | None:
    """Return why Kafka cannot run on this machine's Java and what to install; None if it can."""
    try:
        java = java_command()
    except BrokerError as error:
        return str(error)
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} does not run ({error}): {_INSTALL_JAVA}"
    said = asked.stderr + asked.stdout
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if asked.returncode != 0 or found is None:
        return f"{java} -version says {said.strip()[:200]!r}: {_INSTALL_JAVA}"
    if int(found[1]) < JAVA_NEEDED:
        return f"{java} is Java {found[1]}, too old for Kafka 4: {_INSTALL_JAVA}"
    return None


def maven_command() -> str:
    """The first `mvn` on `PATH`.

    Raises:
        BrokerError: there is none.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError(f"Maven (`mvn`) was not found on PATH: {_INSTALL_MAVEN}")
    return maven


def maven_problem() -> str | None:
    """Return why the jars cannot be fetched and what to install; None if Maven is there."""
    try:
        maven_command()
    except BrokerError as error:
        return str(error)
    return None


KAFKA_VERSION = "4.3.0"
"""The version that `pom.xml` pins."""
OLDEST_KAFKA_VERSION = "3.4.1"
"""The oldest version that `make kafkas` tests."""

_FETCH_WITHIN_S = 900


def cache_folder() -> Path:
    """Where things are kept that can be fetched or made again, outside the checkout.

    `STREAM_DP_CACHE`, else `stream-dp` in `XDG_CACHE_HOME`, else in `~/.cache`.
    """
    named = os.environ.get("STREAM_DP_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "stream-dp"


def kafka_version() -> str:
    """Return the version of the local Kafka: STREAM_DP_KAFKA_VERSION if it is set, otherwise `KAFKA_VERSION`.

    Raises:
        BrokerError: the variable is not a version number.
    """
    version = os.environ.get("STREAM_DP_KAFKA_VERSION") or KAFKA_VERSION
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise BrokerError(
            f"STREAM_DP_KAFKA_VERSION is {version!r}; set it to a version of Apache Kafka, such as {KAFKA_VERSION}"
        )
    return version


def jars_folder() -> Path:
    """Where the jars of this `pom.xml` are, or will be once fetched; the folder exists only when complete.

    Its name carries a digest of `pom.xml`, so that another set of versions never mixes with this one.
    """
    pom = files(__package__).joinpath("pom.xml").read_bytes()
    return cache_folder() / "kafka" / kafka_version() / f"libs-{hashlib.sha256(pom).hexdigest()[:12]}"


def local_kafka_problem() -> str | None:
    """Why `start` could not run a Kafka on this machine, and what to install; None when it could.

    Maven is asked for only while the jars are not in the cache.
    """
    return java_problem() or (None if jars_folder().is_dir() else maven_problem())


def fetch_jars(say: Callable[[str], None] = lambda _: None) -> Path:
    """Fetch the jars unless they are there.

    Maven writes into a temporary folder beside the final one, which takes its name only when everything is in it:
    a fetch that was cut short leaves nothing that could be taken for a finished one.

    Args:
        say: told in one line what is about to take a while.

    Returns:
        The folder of jars.

    Raises:
        BrokerError: Maven is missing, failed or took too long; the message ends with what it said.
    """
    folder = jars_folder()
    if folder.is_dir():
        return folder
    maven = maven_command()
    say(f"Fetching Apache Kafka {kafka_version()} with Maven (44 MB, once) into {folder}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
    try:
        _copy_dependencies(maven, partial)
        partial.chmod(0o755)
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # someone else finished first; theirs is as good
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _copy_dependencies(maven: str, folder: Path) -> None:
    """Run Maven; what it downloads must match the checksums its repository publishes."""
    version = kafka_version()
    with as_file(files(__package__).joinpath("pom.xml")) as pom:
        command = [maven, "-q", "-B", "--strict-checksums", "-f", str(pom), f"-Dkafka.version={version}"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_WITHIN_S)  # noqa: S603
        except subprocess.TimeoutExpired as error:
            raise BrokerError(f"Maven did not fetch Kafka within {_FETCH_WITHIN_S} s") from error
        except OSError as error:
            raise BrokerError(f"{maven} does not run: {error}") from error
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise BrokerError(f"Maven could not fetch Kafka {version} (exit {done.returncode}); it said:\n{said}")
    if not (folder / f"kafka_2.13-{version}.jar").is_file():
        raise BrokerError(f"Maven succeeded but did not fetch kafka_2.13-{version}.jar")
