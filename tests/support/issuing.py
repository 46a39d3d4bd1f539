"""An issuer of JWTs: its keys, its JWKS, and tokens that are right or wrong in one thing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, JWKRegistry, Key, OctKey, OKPKey, RSAKey

from stream_dp.config.plan import JwtPlan
from tests.support.gateway import NOW

PLAN = JwtPlan("https://issuer.example", "stream-dp", "https://issuer.example/keys", "reads")
CLAIMS: Mapping[str, Any] = {
    "iss": PLAN.issuer,
    "aud": PLAN.audience,
    "sub": "alice",
    "exp": NOW // 1000 + 600,
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
