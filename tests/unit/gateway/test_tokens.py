"""Tokens of readers: the file, what a credential gives, and the limits of requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_dp.errors import ConfigError
from stream_dp.gateway.tokens import (
    LOOKER,
    OPERATOR,
    OPERATORS_PREFIX,
    RequestRate,
    Tokens,
    new_token,
    read_tokens,
    reader_of,
    revoke_token,
)
from stream_dp.windows.durations import parse_time
from tests.support.published import Call, Said

NOW = parse_time("2026-11-01T00:00:00Z")


class Clock:
    ms = NOW

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "readers.tokens"


def looked(file: Path, clock: Clock | None = None) -> Tokens:
    tokens = Tokens(file, clock or Clock())
    tokens.look()
    return tokens


def test_a_token_is_kept_as_a_hash_in_a_file_that_nobody_else_reads(file: Path) -> None:
    entry, token = new_token(file, "partner", NOW, note="the press")
    assert (len(token), token[:4]) == (47, "sdp_")
    assert file.stat().st_mode & 0o777 == 0o600
    assert token[4:] not in file.read_text()
    assert read_tokens(file) == [entry]
    assert looked(file).entry(token) == entry


def test_tokens_are_added_and_taken_out_one_by_one(file: Path) -> None:
    made = [new_token(file, f"a{number}", NOW) for number in range(3)]
    assert revoke_token(file, made[1][0].id) == made[1][0]
    assert read_tokens(file) == [made[0][0], made[2][0]]
    with pytest.raises(ConfigError, match="no token has the id"):
        revoke_token(file, made[1][0].id)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_that_others_may_read_or_write_gives_nothing(file: Path, mode: int) -> None:
    _, token = new_token(file, "partner", NOW)
    file.chmod(mode)
    tokens = looked(file)
    assert tokens.entry(token) is None
    assert "chmod 600" in tokens.fault


def test_a_line_that_is_no_token_is_named(file: Path) -> None:
    new_token(file, "partner", NOW)
    with file.open("a") as out:
        out.write("{}\n")
    with pytest.raises(ConfigError, match="line 2"):
        read_tokens(file)


def test_a_revoked_token_and_an_expired_one_are_told_apart(file: Path) -> None:
    clock = Clock()
    first, token = new_token(file, "partner", NOW, expires_ms=NOW + 1000)
    second, other = new_token(file, "staff", NOW)
    tokens = looked(file, clock)
    assert (tokens.ended(first), tokens.ended(second)) == (None, None)
    clock.ms += 1000
    revoke_token(file, second.id)
    assert tokens.entry(token) is None
    assert tokens.look()
    assert not tokens.look()
    assert (tokens.ended(first), tokens.ended(second)) == ("expired", "revoked")
    assert tokens.entry(other) is None


def test_a_file_that_goes_takes_all_tokens_with_it(file: Path) -> None:
    _, token = new_token(file, "partner", NOW)
    tokens = looked(file)
    file.unlink()
    assert tokens.look()
    assert tokens.entry(token) is None


@pytest.mark.parametrize(
    "change", [str.upper, lambda t: t[:-1], lambda t: t + t, lambda t: t + "\n", lambda t: "é" + t]
)
def test_a_changed_token_gives_nothing(file: Path, change: object) -> None:
    assert callable(change)
    _, token = new_token(file, "partner", NOW)
    assert looked(file).entry(change(token)) is None


async def test_a_reader_has_the_audience_of_its_token_or_of_its_cookies_beside_the_public_ones(file: Path) -> None:
    entry, token = new_token(file, "partner", NOW)
    staff, other = new_token(file, "staff", NOW)
    tokens = looked(file)
    assert (await reader_of(tokens, ("public",), f"Bearer {token}", {}, "1")).audiences == {"partner": entry}
    assert (await reader_of(tokens, ("public",), None, {}, "1")).audiences == {"public": None}
    both = {"sdp-partner": token, "__Host-sdp-staff": other, "theme": "dark"}
    assert (await reader_of(tokens, ("public",), None, both, "1")).audiences == {
        "partner": entry,
        "staff": staff,
        "public": None,
    }
    assert (await reader_of(tokens, (), None, {"sdp-staff": token}, "1")).is_bad
    basic = await reader_of(tokens, ("public",), f"Basic {token}", {}, "1")
    assert basic == await reader_of(tokens, (), "x", {"a": "b"}, "1")


def test_a_rate_lets_a_burst_through_and_then_says_how_long_to_wait() -> None:
    now = [0.0]
    rate = RequestRate(2, 3, lambda: now[0])
    assert [rate.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rate.take("b") == 0
    assert rate.wait("a") == 0.5
    now[0] += 0.5
    assert rate.wait("a") == 0
    assert rate.take("a") == 0
    assert rate.take("a") == 0.5


def test_the_command_makes_lists_and_revokes(visits_file: Path, call: object) -> None:
    assert callable(call)
    visits_file.write_text(visits_file.read_text() + "serve: {tokens: ./readers.tokens, public: [public]}\n")
    made: Said = call("token", "new", str(visits_file), "staff", "--expires", "90d", "--note", "ops")
    entry = read_tokens(visits_file.with_name("readers.tokens"))[0]
    assert (made.code, looked(visits_file.with_name("readers.tokens"), Clock()).entry(made.out.split()[-1])) == (
        0,
        entry,
    )
    assert f"{entry.id}  staff" in call("token", "list", str(visits_file)).out
    assert call("token", "revoke", str(visits_file), entry.id).code == 0
    assert call("token", "list", str(visits_file)).out.endswith(": 0\n")
    assert call("token", "new", str(visits_file), "stuff").code == 2


def test_the_command_makes_lists_and_revokes_tokens_of_operators(visits_file: Path, call: Call) -> None:
    assert "console.tokens: is required" in call("token", "new", visits_file, "--operator").err
    visits_file.write_text(visits_file.read_text() + "console: {tokens: ./operators.tokens}\n")
    made = [call("token", "new", visits_file, "--operator", *look).out.split()[-1] for look in ([], ["--look"])]
    file = visits_file.with_name("operators.tokens")
    tokens = Tokens(file, Clock(), OPERATORS_PREFIX)
    tokens.look()
    entries = [tokens.entry(token) for token in made]
    assert [entry and entry.audience for entry in entries] == [OPERATOR, LOOKER]
    assert all(token.startswith("sdpo_") and looked(file).entry(token) is None for token in made)
    assert "  look  made" in call("token", "list", visits_file, "--operator").out
    revoked = read_tokens(file)[0].id
    assert call("token", "revoke", visits_file, revoked, "--operator").code == 0
    assert tokens.look()
    assert tokens.entry(made[0]) is None


@pytest.mark.parametrize("words", [[], ["staff", "--operator"], ["staff", "--look"], ["--look"]])
def test_a_token_is_of_an_audience_or_of_an_operator(visits_file: Path, call: Call, words: list[str]) -> None:
    said = call("token", "new", visits_file, *words)
    assert said.code == 2
    assert "name an audience, or --operator" in " ".join(said.err.replace("│", " ").split())


async def test_an_operators_cookie_is_nothing_to_the_readers_gateway(file: Path) -> None:
    _, token = new_token(file, OPERATOR, NOW, prefix=OPERATORS_PREFIX)
    cookies = {"sdpo": token, "__Host-sdpo": token}
    known = looked(file)

    assert await reader_of(known, ("public",), None, cookies, "1") == await reader_of(known, ("public",), None, {}, "1")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 is not loopback and tokens would be sent in plaintext"),
        (["--host", "console.example"], "give --tls-cert and --tls-key"),
        (["--without-tls"], "No such option"),
        ([], "console.tokens: is required"),
    ],
)
def test_a_console_without_tls_elsewhere_or_without_tokens_does_not_start(
    visits_file: Path, call: Call, words: list[str], reason: str
) -> None:
    said = call("console", visits_file, *words)
    assert said.code == 2
    assert reason in " ".join(said.err.replace("│", " ").split())
