"""An issuer of JWTs: its keys, its JWKS, and tokens that are right or wrong in one thing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, JWKRegistry, Key, OctKey, OKPKey, RSAKey

from stream_dp.config.file_schema import JwtConfig
from tests.support.gateway import NOW

PLAN = JwtConfig(
    issuer="https://issuer.example", audience="stream-dp", jwks="https://issuer.example/keys", claim="reads"
)
_NOW_S = NOW // 1000
CLAIMS: Mapping[str, Any] = {
    "iss": PLAN.issuer,
    "aud": PLAN.audience,
    "sub": "alice",
    "exp": _NOW_S + 600,
    "reads": "staff",
}


@cache
def key_of(name: str) -> Key:
    """A private key; the name begins with its kind."""
    kinds: dict[str, tuple[str, int | str]] = {"rsa": ("RSA", 2048), "ec": ("EC", "P-256"), "okp": ("OKP", "Ed25519")}
    kinds |= {"p384": ("EC", "P-384"), "weak": ("RSA", 1024), "oct": ("oct", 256)}
    kind, size = kinds[name.partition("-")[0]]
    with warnings.catch_warnings(action="ignore", category=SecurityWarning):
        return JWKRegistry.generate_key(kind, size, {"kid": name})


ALGORITHM = {RSAKey: "RS256", ECKey: "ES256", OKPKey: "EdDSA", OctKey: "HS256"}


def signed(
    key: str | Key = "rsa", payload: bytes | None = None, header: Mapping[str, Any] | None = None, **claims: Any
) -> str:
    """A token; claims and fields of the header that are None are left out."""
    known = key_of(key) if isinstance(key, str) else key
    head = {"alg": ALGORITHM[type(known)], "kid": known.kid, **(header or {})}
    head = {name: value for name, value in head.items() if value is not None}
    body = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    registry = jws.JWSRegistry(algorithms=list(jws.JWSRegistry.algorithms), strict_check_header=False)
    with warnings.catch_warnings(action="ignore", category=SecurityWarning):
        return jws.serialize_compact(head, payload or json.dumps(body).encode(), known, registry=registry)


def part(value: object) -> str:
    """A part of a token, of JSON data or of bytes."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(algorithm: str, signature: bytes = b"") -> str:
    """A token without a right signature."""
    return f"{part({'alg': algorithm, 'kid': 'rsa'})}.{part(CLAIMS)}.{part(signature)}"


def confused() -> str:
    """A token with HS256, whose secret is the public key of another algorithm."""
    text = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(CLAIMS)}"
    key = key_of("rsa")
    assert isinstance(key, RSAKey)
    return f"{text}.{part(hmac.new(key.as_pem(private=False), text.encode(), hashlib.sha256).digest())}"


WRONG_TOKENS: dict[str, Callable[[], str]] = {
    "alg none": lambda: unsigned("none"),
    "alg None": lambda: unsigned("None"),
    "alg none with a signature": lambda: unsigned("none", b"x"),
    "alg empty": lambda: unsigned(""),
    "HS256 with the public key": confused,
    "HS256": lambda: signed("oct"),
    "RS384": lambda: signed(header={"alg": "RS384"}),
    "RS512": lambda: signed(header={"alg": "RS512"}),
    "PS256": lambda: signed(header={"alg": "PS256"}),
    "ES384": lambda: signed("p384", header={"alg": "ES384"}),
    "no signature": lambda: signed().rpartition(".")[0] + ".",
    "two parts": lambda: signed().rpartition(".")[0],
    "four parts": lambda: signed() + ".x",
    "cut": lambda: signed()[:-4],
    "doubled": lambda: signed() + signed(),
    "padded": lambda: signed() + "==",
    "with a line": lambda: signed() + "\n",
    "with signs that base64 passes over": lambda: signed() + "!",
    "other claims": lambda: ".".join([signed().split(".")[0], part({**CLAIMS, "sub": "b"}), signed().split(".")[2]]),
    "other header": lambda: ".".join([part({"alg": "RS256", "kid": "rsa", "x": 1}), *signed().split(".")[1:]]),
    "another's key": lambda: signed("rsa-2", header={"kid": "rsa"}),
    "key of another algorithm": lambda: signed("ec", header={"kid": "rsa"}),
    "no kid": lambda: signed(header={"kid": None}),
    "kid a number": lambda: f"{part({'alg': 'RS256', 'kid': 5})}.{part(CLAIMS)}.{part(b'x')}",
    "kid a list": lambda: f"{part({'alg': 'RS256', 'kid': ['rsa']})}.{part(CLAIMS)}.{part(b'x')}",
    "kid a path": lambda: signed(header={"kid": "../../rsa"}),
    "own key in the header": lambda: signed(
        "rsa-2", header={"kid": "rsa", "jwk": key_of("rsa-2").as_dict(private=False)}
    ),
    "own address of keys": lambda: signed("rsa-2", header={"kid": "rsa", "jku": "https://evil.example"}),
    "critical": lambda: ".".join(
        [part({"alg": "RS256", "kid": "rsa", "crit": ["x"], "x": 1}), *signed().split(".")[1:]]
    ),
    "no iss": lambda: signed(iss=None),
    "wrong iss": lambda: signed(iss=PLAN.issuer + "/"),
    "iss a list": lambda: signed(iss=[PLAN.issuer]),
    "no aud": lambda: signed(aud=None),
    "wrong aud": lambda: signed(aud="stream"),
    "wrong list of aud": lambda: signed(aud=["a", "b"]),
    "empty aud": lambda: signed(aud=[]),
    "aud an object": lambda: signed(aud={PLAN.audience: 1}),
    "no exp": lambda: signed(exp=None),
    "past exp": lambda: signed(exp=_NOW_S - 1),
    "exp now": lambda: signed(exp=_NOW_S),
    "exp a text": lambda: signed(exp=str(_NOW_S + 600)),
    "exp true": lambda: signed(exp=True),
    "exp no number": lambda: signed(exp=float("nan")),
    "exp endless": lambda: signed(exp=float("inf")),
    "future nbf": lambda: signed(nbf=_NOW_S + 1),
    "nbf a text": lambda: signed(nbf="0"),
    "future iat": lambda: signed(iat=_NOW_S + 1),
    "no claim": lambda: signed(reads=None),
    "claim a number": lambda: signed(reads=5),
    "claim an object": lambda: signed(reads={"staff": True}),
    "claim a part of a name": lambda: signed(reads="sta"),
    "claim with a space": lambda: signed(reads="public staff"),
    "no object": lambda: signed(payload=b"[]"),
    "no JSON": lambda: signed(payload=b"{"),
    "no text": lambda: signed(payload=b"\xff"),
    "deep": lambda: signed(payload=b"[" * 9000),
    "deep header": lambda: f"{part(b'[' * 9000)}.{part(CLAIMS)}.{part(b'x')}",
    "header no object": lambda: f"{part(['alg'])}.{part(CLAIMS)}.{part(b'x')}",
    "empty": lambda: "..",
}
"""Each wrong in one thing."""


@dataclass
class Issuer:
    """The address of its keys: what it answers, and how often it was asked."""

    names: list[str] = field(default_factory=lambda: ["rsa", "ec", "okp"])
    extra: list[Any] = field(default_factory=list)
    fetches: int = 0
    fault: Exception | None = None
    now: float = 1000.0

    def jwks(self) -> bytes:
        public = [key_of(name).as_dict(private=False) for name in self.names]
        return json.dumps({"keys": [*public, *self.extra]}).encode()

    async def fetch(self, address: str) -> bytes:
        assert address == PLAN.jwks
        self.fetches += 1
        if self.fault is not None:
            raise self.fault
        return self.jwks()

    def clock(self) -> float:
        return self.now
