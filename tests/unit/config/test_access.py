"""What may stand under `broker`, what a plan makes of it, and variables of the environment in the values of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.config import crosschecks
from stream_dp.config.access import Broker, Registry, Sasl, Secret, Tls
from stream_dp.config.explanation import describe
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.config.yaml_data import substitute
from stream_dp.errors import ConfigError
from tests.support.visits import configuration

Planned = Callable[..., Plan]
WRITTEN = "a-secret-that-was-written-into-the-file"


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """The plan of an application with something under `broker`."""

    def plan(broker: str, *changes: tuple[str, str], **environ: str) -> Plan:
        file = tmp_path / "app.yaml"
        file.write_text(configuration("shop", ("broker: memory://", f"broker: {broker}"), *changes))
        return load_plan(file, environ)

    return plan


def faults(plan: Callable[[], Plan]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        plan()
    return [str(fault) for fault in raised.value.faults]


def test_address_alone_is_a_cluster_in_plaintext_that_knows_the_application_by_its_name(planned: Planned) -> None:
    assert planned("here:9092").broker == Broker("kafka://here:9092", "shop")
    assert planned("here:9092").broker.access == ""


def test_everything_that_is_needed_to_get_in_is_planned_with_files_beside_the_configuration(
    planned: Planned, tmp_path: Path
) -> None:
    broker = planned(
        "{address: 'a:1,b:2', client_id: tester, "
        "tls: {ca: ca.pem, certificate: /etc/me.crt, key: me.key, key_password: {env: KEY_WORD}}, "
        "sasl: {mechanism: SCRAM-SHA-512, username: me, password: {file: password}}}"
    ).broker
    assert broker == Broker(
        "kafka://a:1,b:2",
        "tester",
        Tls(
            tmp_path / "ca.pem",
            Path("/etc/me.crt"),
            tmp_path / "me.key",
            Secret("broker.tls.key_password", None, "KEY_WORD"),
        ),
        Sasl("scram-sha-512", "me", Secret("broker.sasl.password", tmp_path / "password")),
    )
    assert (broker.address, broker.access) == ("a:1,b:2", "TLS with a certificate, scram-sha-512 as me")


def test_token_takes_the_place_of_user_and_password(planned: Planned, tmp_path: Path) -> None:
    broker = planned("{address: 'a:1', tls: true, sasl: {mechanism: oauthbearer, token: {file: token}}}").broker
    assert broker.tls == Tls()
    assert broker.sasl == Sasl("oauthbearer", "", Secret("broker.sasl.token", tmp_path / "token"))
    assert broker.access == "TLS, oauthbearer"


def test_environment_names_the_address_alone(planned: Planned) -> None:
    broker = planned("{address: 'a:1', client_id: tester, tls: true}", STREAM_DP_BROKER="b:2").broker
    assert broker == Broker("kafka://b:2", "tester", Tls())
    assert planned("{tls: true}", STREAM_DP_BROKER="b:2").broker.url == "kafka://b:2"
    assert faults(lambda: planned("{tls: true}", STREAM_DP_BROKER="b")) == [
        'STREAM_DP_BROKER: \'b\' is no broker: write "kafka://host:port" or "memory://"'
    ]


NO_SECRET = "must not be in the file: write {file: PATH} or {env: NAME}"


@pytest.mark.parametrize(
    ("broker", "said"),
    [
        ("{}", ["broker.address: is required"]),
        ("5", ["broker: must be a mapping of keys, not 5"]),
        ("{address: 'a:1', sals: {}}", ["broker.sals: unknown key; did you mean 'sasl'?"]),
        ("{address: 'a:1', tls: {caa: x}}", ["broker.tls.caa: unknown key; did you mean 'ca'?"]),
        (
            "{address: 'a:1', tls: }",
            ['broker.tls: write "true" for TLS with the certificates that the system trusts, or a mapping: {ca: FILE}'],
        ),
        (
            "{address: 'a:1', tls: false}",
            ['broker.tls: write "true" for TLS with the certificates that the system trusts, or a mapping: {ca: FILE}'],
        ),
        (
            "{address: 'a:1', sasl: }",
            ["broker.sasl: must be a mapping of mechanism, username, password or token"],
        ),
        (
            "{address: 'a:1', tls: {key: k, key_password: {env: K}}}",
            [
                "broker.tls.key: needs broker.tls.certificate",
                "broker.tls.key_password: needs broker.tls.certificate",
            ],
        ),
        (
            "{address: 'a:1', sasl: {mechanism: plain, token: {env: T}}}",
            [
                "broker.sasl.username: is required with plain",
                "broker.sasl.password: is required with plain",
                "broker.sasl.token: cannot be combined with plain",
                "broker.tls: is required with plain: without TLS, the password is sent in plaintext",
            ],
        ),
        (
            "{address: 'a:1', sasl: {mechanism: oauthbearer, username: me, token: {env: T}}}",
            [
                "broker.sasl.username: cannot be combined with oauthbearer",
                "broker.tls: is required with oauthbearer: without TLS, the token is sent in plaintext",
            ],
        ),
        (
            "{address: 'a:1', tls: true, sasl: {mechanism: plain, username: me, password: {env: A, file: B}}}",
            ["broker.sasl.password: must be in one place: write {file: PATH} or {env: NAME}"],
        ),
        (
            "{address: 'a:1', sasl: {mechanism: gssapi, username: me, password: {env: A}}}",
            ["broker.sasl.mechanism: must be 'scram-sha-512', 'scram-sha-256', 'plain' or 'oauthbearer', not 'gssapi'"],
        ),
        (
            f"{{address: 'a:1', tls: {{certificate: c, key_password: {WRITTEN}}}, "
            f"sasl: {{mechanism: scram-sha-512, username: me, password: {WRITTEN}, token: [{WRITTEN}]}}}}",
            [
                f"broker.tls.key_password: {NO_SECRET}",
                f"broker.sasl.password: {NO_SECRET}",
                f"broker.sasl.token: {NO_SECRET}",
            ],
        ),
        (
            f"{{address: 'a:1', sasl: {{mechanism: plain, username: me, "
            f"password: {{{WRITTEN}: 1, file: [{WRITTEN}]}}}}}}",
            [
                "broker.sasl.password.file: must be text",
                f"broker.sasl.password.{WRITTEN}: unknown key; known: env, file",
            ],
        ),
        (
            f"'kafka://me:{WRITTEN}@a:1'",
            ["broker: must have no user and password: write them under broker.sasl"],
        ),
    ],
)
def test_what_cannot_be_meant_is_a_fault_with_its_path_that_shows_no_secret(
    planned: Planned, broker: str, said: list[str]
) -> None:
    assert faults(lambda: planned(broker)) == said


def test_faults_under_broker_come_with_all_others(planned: Planned) -> None:
    wrong = "{address: 'a:1', tls: {key: k}}"
    assert faults(lambda: planned(wrong, ("items_per_user: 2", "items_per_user: 0"))) == [
        "broker.tls.key: needs broker.tls.certificate",
        "views.shop-pages.items_per_user: must be at least 1, not 0",
    ]


def test_login_without_tls_is_warned_of(planned: Planned) -> None:
    bare = "{address: 'a:1', sasl: {mechanism: scram-sha-256, username: me, password: {env: A}}}"
    assert [words for words in describe(planned(bare)).warnings if "broker" in words] == [
        "broker.sasl without broker.tls: raw events and counts cross the network in plaintext, and a "
        "listener can guess the password from the login; write `tls: true`, or name a CA"
    ]
    safe = bare.replace("sasl:", "tls: true, sasl:")
    assert not [words for words in describe(planned(safe)).warnings if "broker" in words]


def test_variables_stand_for_texts_wherever_these_are_values(planned: Planned) -> None:
    plan = planned(
        "{address: '${HOST}:${PORT}', client_id: '$${x}-${ID}'}",
        ('epsilon: "100"', 'epsilon: "${BUDGET}"'),
        ("population: visitors", 'population: "visitors of ${SITE}"'),
        HOST="here",
        PORT="9092",
        ID="me",
        BUDGET="1000/3",
        SITE="a: {b: [c]}",
    )
    assert plan.broker == Broker("kafka://here:9092", "${x}-me")
    ledger = plan.ledgers["visitors"]
    assert (str(ledger.total.epsilon), ledger.population) == ("1000/3", "visitors of a: {b: [c]}")


def test_what_a_variable_holds_is_text_and_is_not_looked_at_again() -> None:
    data, found = substitute({"${A}": ["${A}", {"b": "-${A}${B}-"}], "n": 5, "t": True}, {"A": "${B}", "B": "5"})
    assert data == {"${A}": ["${B}", {"b": "-${B}5-"}], "n": 5, "t": True}
    assert found == []


def test_variables_that_are_not_set_are_faults_with_path_and_name_and_no_others_of_the_same_text(
    planned: Planned,
) -> None:
    assert faults(
        lambda: planned(
            "'${HOST}'", ("item: page", "item: '${ITEM}'"), ("ledger: visitors", "ledger: '${A}${B}${A}'"), ITEM="x"
        )
    ) == [
        "broker: the environment variable HOST is not set",
        "views.shop-pages.ledger: the environment variable A is not set",
        "views.shop-pages.ledger: the environment variable B is not set",
    ]


@pytest.mark.parametrize("text", ["${}", "${", "a${1}", "${A-B}", "${ A }"])
def test_what_looks_like_a_variable_and_is_none_is_a_fault(text: str) -> None:
    data, found = substitute({"key": text}, {"A": "a"})
    assert data == {"key": text}
    assert [str(fault) for fault in found] == [
        "key: `${` begins the name of an environment variable, as in `${NAME}`; write `$${` for itself"
    ]


def test_a_number_may_not_come_from_a_variable(planned: Planned) -> None:
    assert faults(lambda: planned("here:1", ("partitions: 3", "partitions: '${N}'"), N="3")) == [
        "sources.visits.partitions: must be a whole number, not '3'"
    ]


AVRO = ("partitions: 3", "partitions: 3, format: avro")


def with_registry(given: str) -> tuple[tuple[str, str], ...]:
    return AVRO, ("erase_within: 20s", f"registry: {given}")


def test_a_registry_is_an_address_or_a_mapping_with_a_login_beside_the_configuration(
    planned: Planned, tmp_path: Path
) -> None:
    assert planned("here:9092").registry is None
    plan = planned("here:9092", *with_registry("http://r:8081/apis/ccompat/v7/"))
    assert plan.registry == Registry("http://r:8081/apis/ccompat/v7")
    assert {view.source.format for view in plan.views.values()} == {"avro"}
    full = "{url: https://r, tls: {ca: ca.pem}, username: me, password: {env: WORD}}"
    assert planned("here:9092", *with_registry(full)).registry == Registry(
        "https://r", Tls(tmp_path / "ca.pem"), "me", Secret("registry.password", None, "WORD")
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("r:8081", "registry: 'r:8081' is no registry: write \"http://host:port\""),
        ("http://me:word@r", "registry: must have no user and password"),
        ("http://r/?x=1", "registry: 'http://r/?x=1' is no registry"),
        ("{tls: true}", "registry.url: is required"),
        ("{url: http://r, pasword: 5}", "registry.pasword: unknown key; did you mean 'password'?"),
        (
            f"{{url: https://r, username: me, password: {WRITTEN}}}",
            "registry.password: must not be in the file",
        ),
        ("{url: https://r, username: me}", "registry.password: is required"),
        ("{url: https://r, password: {env: X}}", "registry.username: is required"),
        ("{url: https://r, username: 'a:b', password: {env: X}}", "registry.username: must not contain ':'"),
        ("{url: https://r, username: me, password: {}}", "registry.password: must be in one place"),
        ("{url: http://r, username: me, password: {env: X}}", "registry.url: must begin with https://"),
        ("{url: http://r, tls: {ca: x}}", "registry.tls: cannot be combined with http://"),
        (
            "{url: https://r, tls: {key: x}}",
            "registry.tls.key: needs registry.tls.certificate",
        ),
    ],
)
def test_what_does_not_go_together_under_registry_is_told_and_no_secret_is(
    planned: Planned, given: str, told: str
) -> None:
    (fault,) = faults(lambda: planned("here:9092", *with_registry(given)))
    assert fault.startswith(told)
    assert WRITTEN not in fault


def test_avro_needs_a_registry_and_the_extra_and_says_so_once(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = ("sources:\n", "sources:\n  more: {topic: more, partitions: 3, format: avro}\n")
    (fault,) = faults(lambda: planned("here:9092", AVRO, second))
    assert fault == "registry: is required by format: avro of source 'more', for the schemas of its values"
    monkeypatch.setattr(crosschecks, "find_spec", lambda name: None if name == "fastavro" else name)
    (fault,) = faults(lambda: planned("here:9092", *with_registry("http://r"), second))
    assert fault == ("sources.more.format: Avro is read by fastavro: pip install 'stream-dp[avro]', or write JSON")
    assert planned("here:9092").registry is None
    (fault,) = faults(lambda: planned("here:9092", ("partitions: 3", "partitions: 3, format: protobuf")))
    assert fault == "sources.visits.format: must be 'json' or 'avro', not 'protobuf'"
