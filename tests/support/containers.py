"""Containers of the image of deploy/Dockerfile, run by podman as deploy/compose.yaml runs them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).parents[2]
IMAGE = "localhost/stream-dp-tests"
BASE = "docker.io/library/python:3.11-slim-bookworm"
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4000:4000")
"""Limits that podman may set without the right to raise its own."""
MACHINE_FILES = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Where this machine says which package index to use, and whom to trust."""
BUILD_SECONDS = 1800


def missing_program() -> str | None:
    """Return which of the programs that the tests need is missing."""
    needed = ("podman", "runc", "debootstrap")
    return next((name for name in needed if shutil.which(name) is None), None)


def accepts(*arguments: str | Path) -> bool:
    """Return whether podman does something without an error."""
    return _run(arguments, 120).returncode == 0


def podman(*arguments: str | Path, seconds: float = 120, check: bool = True) -> str:
    """Run podman and return what it printed."""
    done = _run(arguments, seconds)
    if check and done.returncode != 0:
        raise AssertionError(f"podman {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def _run(arguments: Sequence[str | Path], seconds: float) -> subprocess.CompletedProcess[str]:
    command = ["podman", "--runtime", "runc"]
    if not Path("/run/systemd/system").is_dir():
        command += ["--cgroup-manager", "cgroupfs"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=seconds)


def build_image(folder: Path) -> None:
    """Build the image from the checkout; make its base where no registry gives it."""
    if not (accepts("image", "exists", BASE) or accepts("pull", "--quiet", BASE)):
        _import_base(folder / "base")
    mounts = [f"--volume={file}:{file}:ro" for file in MACHINE_FILES if Path(file).exists()]
    options = ["--format", "docker", "--network", "host", *LIMITS, *mounts]
    dockerfile = CHECKOUT / "deploy" / "Dockerfile"
    podman("build", *options, "--file", dockerfile, "--tag", IMAGE, CHECKOUT, seconds=BUILD_SECONDS)


def _import_base(root: Path) -> None:
    """Make what python:3.11-slim-bookworm is for our Dockerfile: Debian 12 with Python 3.11 and pip."""
    packages = "--include=python3,python3-venv,python3-pip,ca-certificates"
    subprocess.run(
        ["debootstrap", "--variant=minbase", packages, "bookworm", root],
        check=True,
        capture_output=True,
        timeout=BUILD_SECONDS,
    )
    (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink(missing_ok=True)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    archive = root.with_suffix(".tar")
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True, timeout=BUILD_SECONDS)
    shutil.rmtree(root)
    podman("import", "--quiet", archive, BASE, seconds=BUILD_SECONDS)
    archive.unlink()


class Containers:
    """The containers of one application, each with the security settings of a service in compose.yaml."""

    def __init__(self, name: str, folder: Path, broker: str) -> None:
        """Set up; nothing runs yet.

        Args:
            name: prefix of the names of containers and volumes.
            folder: mounted where compose.yaml mounts `./sample`.
            broker: address of a Kafka on this machine.
        """
        self._name, self._folder, self._broker = name, folder, broker
        self._services: Mapping[str, Any] = _services()
        self._started: set[str] = set()

    def start(self, service: str, command: Sequence[str], name: str | None = None, probe: str | None = None) -> str:
        """Start a container with the settings of a service, and return its name.

        Args:
            service: the service in compose.yaml.
            command: in place of the service's own, whose ports may be taken.
            name: of the container; None: that of the service.
            probe: the address that the health check asks.
        """
        container = f"{self._name}-{name or service}"
        self._started.add(container)
        podman("run", "--detach", f"--name={container}", *self._options(service, probe), IMAGE, *command)
        return container

    def run(self, service: str, *command: str) -> str:
        """Run a container with the settings of a service until it ends, and return what it printed."""
        return podman("run", "--rm", *self._options(service, None), IMAGE, *command)

    def _options(self, service: str, probe: str | None) -> Iterator[str]:
        settings = self._services[service]
        yield from (*LIMITS, "--network=host", f"--env=STREAM_DP_BROKER={self._broker}")
        if settings["read_only"]:
            # Otherwise podman makes /tmp, /run and /var/tmp writable on its own.
            yield from ("--read-only", "--read-only-tmpfs=false")
        yield from (f"--cap-drop={one}" for one in settings["cap_drop"])
        yield from (f"--security-opt={one.partition(':')[0]}" for one in settings["security_opt"])
        yield from (f"--tmpfs={one}" for one in settings["tmpfs"])
        if "entrypoint" in settings:
            yield "--entrypoint=python"
        if probe is not None:
            yield f"--env=STREAM_DP_PROBE={probe}"
        for volume in settings["volumes"]:
            source, _, place = volume.partition(":")
            mounted = self._folder if source == "./sample" else f"{self._name}-{source}"
            yield f"--volume={mounted}:{place}"

    def stop(self, container: str, seconds: int) -> int:
        """Send SIGTERM, and SIGKILL after some seconds; return the exit code and remove the container."""
        podman("stop", f"--time={seconds}", container)
        code = int(podman("inspect", "--format={{.State.ExitCode}}", container))
        podman("rm", container)
        self._started.discard(container)
        return code

    def remove(self) -> None:
        """Remove what is left: containers and volumes."""
        for container in self._started:
            podman("rm", "--force", "--time=1", container, check=False)
        for volume in podman("volume", "ls", "--quiet", f"--filter=name={self._name}").splitlines():
            podman("volume", "rm", "--force", volume, check=False)


def _services() -> Mapping[str, Any]:
    text = (CHECKOUT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    services: Mapping[str, Any] = yaml.safe_load(text)["services"]
    return services
