"""`stream-dp asyncapi`: the document is valid by the schema of AsyncAPI 3.0 and shows an audience nothing of others.

The schema is that of the npm package @asyncapi/specs 6.11.1 (Apache-2.0), `3.0.0-without-$id.json`.
The official parser reads the document in tests/package.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from stream_dp.config.planner import load_plan
from stream_dp.operations.asyncapi import asyncapi
from stream_dp.records.codec import encode
from tests.support.published import VISITS, Call

CHECKOUT = Path(__file__).parents[3]
FORM = json.loads((CHECKOUT / "tests" / "vectors" / "asyncapi-3.0.0.json").read_text(encoding="utf-8"))
SECURED = """{address: "kafka://one:9093,two:9093", tls: {certificate: ./worker.pem},
  sasl: {mechanism: scram-sha-512, username: the-worker, password: {env: THE_PASSWORD}}}"""
Make = Callable[..., Any]


@pytest.fixture
def file(visits_file: Path) -> Path:
    visits_file.write_text(VISITS.replace("memory://", SECURED), encoding="utf-8")
    return visits_file


def document(file: Path, audience: str | None = None) -> Any:
    return asyncapi(load_plan(file), audience)


@pytest.mark.parametrize("audience", [None, "public"])
def test_the_document_is_valid(file: Path, audience: str | None) -> None:
    made = document(file, audience)
    jsonschema.Draft7Validator(FORM).validate(made)
    made["channels"]["pages.public"]["adress"] = made["channels"]["pages.public"].pop("address")
    assert not jsonschema.Draft7Validator(FORM).is_valid(made)


def test_the_documents_of_the_examples_are_valid(tmp_path: Path) -> None:
    source = "key: passenger, time: {field: at, unit: iso}, format: avro"
    files = {name: (CHECKOUT / "docs" / f"{name}.yaml").read_text(encoding="utf-8") for name in ("pages", "searches")}
    files["avro"] = VISITS.replace("memory://", "one:9092\nregistry: http://registry:8081").replace(
        "partitions: 2}", f"partitions: 2, {source}}}"
    )
    for name, text in files.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        jsonschema.Draft7Validator(FORM).validate(document(file))
    event = document(tmp_path / "avro.yaml")["components"]["messages"]["source-visits"]
    assert event["contentType"] == "application/vnd.apache.avro"
    assert event["description"] == "Its schema in the registry has the fields at, page, passenger, query."


def test_records_and_their_keys_are_as_the_document_says(file: Path, release: Make, refusal: Make) -> None:
    made = document(file, "public")
    for name, record in {"histogram": release({"home": 4}), "refusal": refusal()}.items():
        assert made["components"]["messages"][name]["payload"] == {"$ref": f"#/components/schemas/{name}"}
        whole = {"$ref": f"#/components/schemas/{name}", "components": made["components"]}
        check = jsonschema.Draft202012Validator(whole)
        data = json.loads(encode(record))
        check.validate(data)
        del data["window"]["start_ms"]
        assert not check.is_valid(data)


def test_readers_receive_and_producers_send(file: Path) -> None:
    made = document(file)
    actions = {name: (one["action"], one["channel"]["$ref"]) for name, one in made["operations"].items()}
    assert actions == {
        **{
            f"receive-{view}.{audience}": ("receive", f"#/channels/{view}.{audience}")
            for view in ("pages", "searches")
            for audience in ("public", "staff")
        },
        "send-source-visits": ("send", "#/channels/source-visits"),
        "receive-dead-letters-visits": ("receive", "#/channels/dead-letters-visits"),
    }
    pages = made["channels"]["pages.public"]
    assert pages["address"] == "visits.releases.pages.public"
    assert pages["messages"]["release"] == {"$ref": "#/components/messages/histogram"}
    assert pages["bindings"]["kafka"]["topicConfiguration"] == {"cleanup.policy": ["compact"]}
    event = made["components"]["messages"]["source-visits"]
    assert set(event["payload"]["properties"]) == {"page", "query"}
    assert event["bindings"]["kafka"]["key"]["description"] == "The user."


def test_servers_say_how_to_log_in_and_name_no_account(file: Path) -> None:
    made = document(file)
    assert [(one["host"], one["protocol"]) for one in made["servers"].values()] == [
        ("one:9093", "kafka-secure"),
        ("two:9093", "kafka-secure"),
    ]
    assert made["components"]["securitySchemes"] == {
        "scram-sha-512": {"type": "scramSha512"},
        "certificate": {"type": "X509"},
    }
    for word in ("the-worker", "THE_PASSWORD", "worker.pem", "visits.key"):
        assert word not in json.dumps(made)


def test_a_reader_is_shown_no_byte_of_others(file: Path, call: Call) -> None:
    said = call("asyncapi", file, "--audience", "public")
    text = file.read_text(encoding="utf-8")
    others = text.replace("staff: fine", "team-x: fine").replace("topic: visits,", "topic: clicks,")
    file.write_text(others.replace("item: page,", "item: site,").replace('epsilon: "30"', 'epsilon: "31"'))
    assert call("asyncapi", file, "--audience", "public") == said
    assert "staff" not in said.out
    names = list(yaml.safe_load(said.out)["channels"])
    assert names == ["pages.public", "searches.public"]


def test_yaml_and_json_have_the_same_document(file: Path, call: Call) -> None:
    written, plain = call("asyncapi", file), call("asyncapi", file, "--json")
    assert (written.code, plain.code) == (0, 0)
    assert yaml.safe_load(written.out) == json.loads(plain.out) == document(file)


def test_an_unknown_audience_and_the_embedded_log_are_refused(visits_file: Path, file: Path, call: Call) -> None:
    said = call("asyncapi", file, "--audience", "pubic")
    assert (said.code, "no audience is named 'pubic'" in said.err) == (2, True)
    file.write_text(VISITS, encoding="utf-8")
    said = call("asyncapi", file)
    assert (said.code, "memory:// cannot be reached by other programs" in said.err) == (2, True)
