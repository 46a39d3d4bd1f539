"""The image of deploy/Dockerfile runs with the settings of deploy/compose.yaml, ends on SIGTERM, and continues."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tests.support.containers import CHECKOUT, Containers, accepts, build_image, missing_program, podman
from tests.support.ports import free_ports
from tests.support.visits import new_name

pytestmark = [pytest.mark.container, pytest.mark.broker, pytest.mark.nightly]

T = TypeVar("T")
WITHIN_SECONDS = 180.0
WINDOW = timedelta(seconds=5)
STOPPED_WITHIN_SECONDS = 10
"""How long Docker waits after SIGTERM."""
CONFINED = """
import os, pathlib, re
status = pathlib.Path("/proc/self/status").read_text()
print(os.getuid(), *re.findall(r"(?m)^(?:CapEff|CapBnd|NoNewPrivs):\\t(.*)$", status))
for place in ("/", "/etc/stream-dp", "/opt/stream-dp", "/var/lib/stream-dp", "/var/tmp", "/run"):
    try:
        pathlib.Path(place, "written").touch()
    except OSError:
        continue
    print("may write to", place)
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The image, built from this checkout."""
    if (program := missing_program()) is not None:
        pytest.skip(f"{program} is not installed")
    build_image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def containers(image: None, kafka: str, tmp_path: Path) -> Iterator[Containers]:
    """Containers of the sample of compose.yaml, with windows of 5 s."""
    sample = CHECKOUT / "deploy" / "sample"
    name = new_name()
    config = yaml.safe_load((sample / "app.yaml").read_text(encoding="utf-8"))
    config["name"] = name
    config["sources"]["visits"]["topic"] = f"visits-{name}"
    config["ledgers"]["readers"]["epsilon"] = "100000"
    config["ladders"]["pages"] = [{"level": "overview", "epsilon": "10"}, {"level": "standard", "epsilon": "20"}]
    config["views"]["pages"]["window"] = {"size": "5s", "grace": "1s"}
    config["console"] = {"tokens": "/var/lib/stream-dp/tokens/operators.tokens"}
    folder = tmp_path / "sample"
    folder.mkdir()
    (folder / "app.yaml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML that quotes every text
    shutil.copy(sample / "visitors.py", folder)
    folder.chmod(0o755)
    found = Containers(name, folder, kafka)
    yield found
    found.remove()


def get(url: str, token: str | None = None) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return json.load(answer)


def start_of(window: Any) -> datetime:
    return datetime.fromisoformat(window["record"]["window"]["start"])


def eventually(ask: Callable[[], T], containers: Sequence[str]) -> T:
    """Ask until the answer is something; say what the containers logged if it never is."""
    deadline = time.monotonic() + WITHIN_SECONDS
    while True:
        try:
            if answer := ask():
                return answer
        except OSError:
            pass
        if time.monotonic() > deadline:
            logs = [f"{name}:\n{podman('logs', '--tail=20', name, check=False)}" for name in containers]
            raise AssertionError("\n".join(logs))
        time.sleep(0.2)


def test_image_runs_confined_and_again_after_sigterm(containers: Containers) -> None:
    worker_port, gateway_port, console_port = free_ports(3)
    gateway_url, console_url = f"http://127.0.0.1:{gateway_port}", f"http://127.0.0.1:{console_port}"
    begun = datetime.now(UTC)
    worker_command = ["worker", "app.yaml", "--http", f"127.0.0.1:{worker_port}"]
    worker_probe = f"http://127.0.0.1:{worker_port}/readyz"

    visitors = containers.start("visitors", ["/etc/stream-dp/visitors.py", "/etc/stream-dp/app.yaml", "/tmp/ready"])
    eventually(lambda: accepts("exec", visitors, "test", "-e", "/tmp/ready"), [visitors])
    worker = containers.start("worker", worker_command, probe=worker_probe)
    token = containers.run("gateway", "token", "new", "app.yaml", "--operator").split()[-1]
    gateway = containers.start(
        "gateway", ["serve", "app.yaml", f"--port={gateway_port}"], probe=f"{gateway_url}/readyz"
    )
    console = containers.start(
        "gateway", ["console", "app.yaml", f"--port={console_port}"], "console", f"{console_url}/readyz"
    )
    running = [worker, gateway, console]

    def windows_past(moment: datetime) -> list[dict[str, Any]]:
        """All windows, in order, if one of them starts after a moment; else none."""
        found = sorted(get(f"{gateway_url}/v1/views/pages/windows?limit=500")["windows"], key=start_of)
        return found if found and start_of(found[-1]) > moment else []

    before = eventually(lambda: windows_past(begun), running)
    assert any(window["record"]["items"] for window in before)
    assert eventually(lambda: get(f"{console_url}/v1/status", token), running)
    for name in running:
        podman("healthcheck", "run", name)
        assert podman("exec", name, "python", "-c", CONFINED) == f"10001 {0:016x} {0:016x} 1"

    assert containers.stop(worker, STOPPED_WITHIN_SECONDS) == 0
    restarted = datetime.now(UTC)
    running[0] = containers.start("worker", worker_command, "worker-again", worker_probe)
    after = eventually(lambda: windows_past(restarted), running)
    lengths = {start_of(later) - start_of(one) for one, later in pairwise(after)}
    assert lengths == {WINDOW}, "no window is missing"
    assert {window["state"] for window in after} <= {"released", "empty"}

    assert [containers.stop(name, STOPPED_WITHIN_SECONDS) for name in running] == [0, 0, 0]
