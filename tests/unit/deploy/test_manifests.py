"""Deployments: their commands and files exist, containers may do little, metrics are there, alerts fire."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from stream_dp.cli import cli
from stream_dp.config.planner import load_plan
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.compose import composed
from tests.support.operating import METRICS

CHECKOUT = Path(__file__).parents[3]
DEPLOY = CHECKOUT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNITS = sorted((DEPLOY / "systemd").iterdir())
MANIFESTS = [
    one
    for name in ("namespace", "worker", "gateway", "network")
    for one in yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text(encoding="utf-8"))
]
PODS = [one["spec"]["template"]["spec"] for one in MANIFESTS if one["kind"] in ("StatefulSet", "Deployment")]
OURS = ("visitors", "worker", "gateway")
GATEWAY = set(re.findall(r"`(stream_dp_gateway_\w+)", (CHECKOUT / "docs" / "gateway.md").read_text(encoding="utf-8")))
FILES = [DEPLOY / "prometheus" / "alerts.yml", DEPLOY / "grafana" / "stream-dp.json"]


def commands() -> Iterator[list[str]]:
    """Every call of the program: by compose, by the pods, by the units."""
    for name in OURS[1:]:
        yield composed()["services"][name]["command"]
    for pod in PODS:
        yield pod["containers"][0]["args"]
    for unit in UNITS:
        (line,) = re.findall(r"^ExecStart=/opt/stream-dp/bin/stream-dp (.*)$", unit.read_text("utf-8"), re.MULTILINE)
        yield line.split()


@pytest.mark.parametrize("command", [*commands()], ids=lambda words: words[0])
def test_every_command_has_the_options_that_it_is_called_with(command: list[str], tmp_path: Path) -> None:
    name, *words = command
    (tmp_path / "there").touch()
    words = [re.sub(r"[\w./%-]*\.(yaml|crt|key)$", str(tmp_path / "there"), word) for word in words]
    found = cli.get_command(click.Context(cli), name)
    assert found is not None

    found.make_context(name, words)


@pytest.mark.parametrize("file", ["sample/app.yaml", "kubernetes/app.yaml"])
def test_the_applications_can_be_planned(file: str) -> None:
    plan = load_plan(DEPLOY / file, {"KAFKA_USER": "site"})

    assert plan.serve.public == ["public"]


def test_the_image_runs_as_nobody_in_particular_and_copies_what_is_there() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    ]
    ignored = (CHECKOUT / ".dockerignore").read_text(encoding="utf-8").splitlines()

    assert len(stages) == 2
    assert re.search(r"^USER 10001:10001$", stages[-1], re.MULTILINE)
    assert [name for name in copied if not (CHECKOUT / name).exists()] == []
    assert ignored[1] == "*"
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == set(copied)


@pytest.mark.parametrize(("status", "is_well"), [(200, True), (503, False), (0, False)])
def test_the_image_is_healthy_if_its_probe_is_answered_with_200(status: int, is_well: bool) -> None:
    (check,) = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    name, *words = json.loads(check)
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        probe = {"STREAM_DP_PROBE": f"http://127.0.0.1:{server.server_port if status else 1}/readyz"}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {**os.environ, **probe, "http_proxy": "http://127.0.0.1:1"}
        done = subprocess.run(
            [sys.executable, *words], env=environment, capture_output=True, check=False, timeout=WITHIN_SECONDS
        )
        server.shutdown()

    assert (name, done.returncode == 0) == ("python", is_well)
    assert asked == (["/readyz"] if status else [])


@pytest.mark.parametrize("name", [*OURS, "prometheus", "grafana"])
def test_containers_of_compose_may_do_little(name: str) -> None:
    service = composed()["services"][name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    mounted = [volume.split(":")[0] for volume in service["volumes"]]
    assert [path for path in mounted if path.startswith(".") and not (DEPLOY / path).exists()] == []
    assert {path for path in mounted if not path.startswith(".")} <= composed()["volumes"].keys()
    assert all(volume.endswith(":ro") for volume in service["volumes"] if volume.startswith("."))


@pytest.mark.parametrize("pod", PODS, ids=["worker", "gateway"])
def test_pods_may_do_little_and_mount_what_is_declared(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    claims = [
        one["metadata"]["name"] for each in MANIFESTS for one in each.get("spec", {}).get("volumeClaimTemplates", [])
    ]
    names = {one["name"] for one in pod["volumes"]} | set(claims)
    ports = {one["name"] for one in container["ports"]}

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {one["name"] for one in container["volumeMounts"]} <= names
    assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports


def test_the_gateway_has_neither_keys_nor_state() -> None:
    mounted = {one["name"] for one in PODS[1]["containers"][0]["volumeMounts"]}

    assert mounted == {"app", "tokens", "tls", "kafka", "tmp"}
    assert not {"state", "keys"} & {one.split(":")[0] for one in composed()["services"]["gateway"]["volumes"]}


def test_manifests_are_valid_for_kubernetes() -> None:
    for one in MANIFESTS:
        kubernetes_validate.validate(one, "1.37", strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**one, "spce": {}}, "1.37", strict=True)


def test_state_outlives_a_pod_networks_are_narrow_and_evictions_go_one_by_one() -> None:
    of: dict[str, list[Any]] = {}
    for one in MANIFESTS:
        of.setdefault(one["kind"], []).append(one.get("spec"))
    labels = [one["template"]["metadata"]["labels"] for one in (*of["StatefulSet"], *of["Deployment"])]
    (claim,) = of["StatefulSet"][0]["volumeClaimTemplates"]

    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert [one["podSelector"]["matchLabels"] for one in of["NetworkPolicy"]] == labels
    assert all(set(one["policyTypes"]) == {"Ingress", "Egress"} for one in of["NetworkPolicy"])
    assert all("from" in rule for rule in of["NetworkPolicy"][0]["ingress"])
    assert sorted(one["selector"]["matchLabels"]["app"] for one in of["PodDisruptionBudget"]) == sorted(
        one["app"] for one in labels
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda file: file.name)
def test_units_are_valid(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    text = unit.read_text(encoding="utf-8")
    assert "\nRestartPreventExitStatus=2\n" in text
    file = tmp_path / unit.name.replace("@", "@site")
    file.write_text(text.replace("/opt/stream-dp/bin/stream-dp", "/bin/true"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_metric_is_one_that_a_worker_or_a_gateway_has(file: Path) -> None:
    named = set(re.findall(r"stream_dp_\w+", file.read_text(encoding="utf-8")))

    assert len(named) > 10
    assert named - METRICS.keys() - GATEWAY == set()


def test_the_board_asks_for_every_alert_and_each_panel_says_what_it_shows() -> None:
    board = json.loads(FILES[1].read_text(encoding="utf-8"))

    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(panel["title"] and panel["description"] and panel["targets"] for panel in board["panels"])


def test_alerts_fire_on_faults_and_are_silent_without() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool")
    tests = DEPLOY / "prometheus" / "alerts_test.yml"
    done = subprocess.run([promtool, "test", "rules", tests], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    (group,) = yaml.safe_load(FILES[0].read_text(encoding="utf-8"))["groups"]
    fired = (DEPLOY / "prometheus" / "alerts_test.yml").read_text(encoding="utf-8")

    assert [rule["alert"] for rule in group["rules"] if f'{{alertname="{rule["alert"]}"}}\'' not in fired] == []
    assert all(rule["annotations"]["summary"].endswith(".") for rule in group["rules"])
    assert {rule["labels"]["severity"] for rule in group["rules"]} == {"critical", "warning"}
