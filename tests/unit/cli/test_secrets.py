"""Commands on machines that have the secrets of a cluster, and on others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.published import Call
from tests.support.secured import make_certificates
from tests.support.visits import configuration

HIDDEN = "hidden-from-everybody"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with certificates."""
    make_certificates(tmp_path)
    return tmp_path


def test_check_serves_a_machine_without_the_secrets_and_says_what_it_lacks(
    folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "app.yaml"
    login = {"mechanism": "scram-sha-512", "username": "me", "password": {"env": "CLUSTER_WORD"}}
    whole = {"address": "a:1", "tls": {"ca": "none.pem"}, "sasl": login}
    file.write_text(configuration("shop", ("broker: memory://", f"broker: {json.dumps(whole)}")))
    said = call("check", file)
    assert said.code == 0
    assert "broker kafka://a:1 (TLS, scram-sha-512 as me)" in said.out
    lacks = "missing on this machine: broker."
    assert f"{lacks}tls.ca: cannot read {folder}/none.pem" in said.out
    assert f"{lacks}sasl.password: the environment variable CLUSTER_WORD is not set" in said.out

    monkeypatch.setenv("CLUSTER_WORD", HIDDEN)
    (folder / "ca.pem").rename(folder / "none.pem")
    machine = call("check", file, "--json")
    assert json.loads(machine.out)["missing"] == []
    assert json.loads(machine.out)["access"] == "TLS, scram-sha-512 as me"
    assert HIDDEN not in machine.out + machine.err + call("check", file).out


def test_check_says_what_of_the_registry_is_not_on_this_machine(folder: Path, call: Call) -> None:
    file = folder / "app.yaml"
    given = {"url": "https://r", "tls": {"ca": "none.pem"}, "username": "me", "password": {"env": "REGISTRY_WORD"}}
    file.write_text(configuration("shop", ("erase_within: 20s", f"registry: {json.dumps(given)}")))
    said = call("check", file)
    assert said.code == 0
    lacks = "missing on this machine: registry."
    assert f"{lacks}tls.ca: cannot read {folder}/none.pem" in said.out
    assert f"{lacks}password: the environment variable REGISTRY_WORD is not set" in said.out


@pytest.mark.parametrize("command", [["worker"], ["ledger"], ["tail", "shop-pages", "public"], ["acl", "--apply"]])
def test_commands_that_connect_end_before_that_where_a_secret_is_missing(
    folder: Path, call: Call, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.cli.worker_command.speak", lambda *_, **__: None)
    file = folder / "app.yaml"
    login = {"mechanism": "plain", "username": "me", "password": {"env": "CLUSTER_WORD"}}
    whole = {"address": "127.0.0.1:1", "tls": True, "sasl": login}
    file.write_text(configuration("shop", ("broker: memory://", f"broker: {json.dumps(whole)}")))
    name, *rest = command
    said = call(name, file, *rest, *(["--worker", "User:me"] if name == "acl" else []))
    assert said.code == 2
    assert said.err.splitlines()[-1] == "error: broker.sasl.password: the environment variable CLUSTER_WORD is not set"
