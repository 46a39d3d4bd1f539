"""What a local Kafka needs from the machine: a Java to run on, and Maven to fetch its jars once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

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
    """What keeps Kafka from running on this machine's Java and what to install; None when nothing does."""
    try:
        java = java_command()
    except BrokerError as error:
        return str(error)
    try:
        asked = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
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
    """What keeps the jars from being fetched and what to install; None when Maven is there."""
    try:
        maven_command()
    except BrokerError as error:
        return str(error)
    return None
