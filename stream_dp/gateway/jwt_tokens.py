"""JSON Web Tokens of an issuer as readers' tokens: checked by its keys, which are fetched and kept for some minutes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import ClientError, ClientSession, ClientTimeout
from joserfc import jws, jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import JWKRegistry, Key

from stream_dp.config.file_schema import JwtConfig
from stream_dp.gateway.tokens import Signed, UncheckedError
from stream_dp.windows.durations import format_time

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
KEEP_SECONDS = 600.0
"""Keys are good for so long after they were fetched."""
RENEW_SECONDS = 300.0
"""After so long they are fetched again, so that an issuer may be away for the rest of the time."""
AGAIN_SECONDS = 60.0
"""Least time between two fetches, whatever tokens name."""
FETCH_SECONDS = 5.0
_FORM = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){2}")
_LARGEST_ANSWER = 1 << 20
_LATEST_S = 253_402_300_799
_KEY_TYPES = ("RSA", "EC", "OKP")
LOG = logging.getLogger("stream_dp.gateway")


async def fetch(url: str) -> bytes:
    """Return the document at an address; no other address is asked instead.

    Raises:
        ValueError: the answer is not 200, or too large.
    """
    found = b""
    async with (
        ClientSession(timeout=ClientTimeout(total=FETCH_SECONDS)) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        if answer.status != 200:
            raise ValueError(f"it answers {answer.status}")
        async for chunk in answer.content.iter_chunked(1 << 16):
            found += chunk
            if len(found) > _LARGEST_ANSWER:
                raise ValueError("it is too large")
    return found


def read_keys(document: bytes) -> dict[str, Key]:
    """Return by id the public keys of a JWKS that may check signatures; others are passed over.

    Raises:
        ValueError: it is no JWKS.
    """
    data = json.loads(document)
    if not isinstance(data, dict) or not isinstance(data.get("keys"), list):
        raise ValueError("it is no JWKS")
    found = {}
    for one in data["keys"]:
        is_known = isinstance(one, dict) and one.get("kty") in _KEY_TYPES and isinstance(one.get("kid"), str)
        if is_known and one.get("use", "sig") == "sig":
            with suppress(Exception), warnings.catch_warnings(action="error", category=SecurityWarning):
                found[one["kid"]] = JWKRegistry.import_key(one)
    return found


def _kid(token: str) -> str | None:
    """Return the id of the key that a token names."""
    if not _FORM.fullmatch(token):
        return None
    try:
        found = jws.extract_compact(token.encode()).headers().get("kid")
    except Exception:  # whatever a stranger's text breaks, it is no token
        return None
    return found if isinstance(found, str) else None


@dataclass
class JwtTokens:
    """The tokens of an issuer.

    Attributes:
        plan: who issues them, for whom, and where its keys are.
        audiences: that there are; others that a token names give nothing.
        now_ms: the clock.
        fetch: returns the document at an address.
        clock: in seconds, for the age of keys.
    """

    plan: JwtConfig
    audiences: tuple[str, ...]
    now_ms: Callable[[], int]
    fetch: Callable[[str], Awaitable[bytes]] = fetch
    clock: Callable[[], float] = time.monotonic
    _keys: Mapping[str, Key] = field(default_factory=dict)
    _fetched: float = float("-inf")
    _asked: float = float("-inf")
    _fetching: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._algorithms = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        self._claims = jwt.JWTClaimsRegistry(
            lambda: self.now_ms() // 1000,
            iss={"essential": True, "value": self.plan.issuer},
            aud={"essential": True, "value": self.plan.audience},
            exp={"essential": True},
        )

    async def given(self, token: str) -> Mapping[str, Signed]:
        """Return by audience what a token gives; nothing if it is not good.

        Raises:
            UncheckedError: there are no keys to check it by now.
        """
        kid = _kid(token)
        key = None if kid is None else await self._key(kid)
        if key is None:
            return {}
        try:
            with warnings.catch_warnings(action="ignore", category=SecurityWarning):  # EdDSA has a newer name
                claims = jwt.decode(token, key, registry=self._algorithms).claims
            self._claims.validate(claims)
            return self._entries(token, claims)
        except Exception:  # whatever a stranger's text breaks, it is no token
            return {}

    def _entries(self, token: str, claims: Mapping[str, Any]) -> dict[str, Signed]:
        named = claims.get(self.plan.claim)
        named = [named] if isinstance(named, str) else named if isinstance(named, list) else []
        subject = claims.get("sub")
        sender = token if subject is None else f"{self.plan.issuer}\0{subject}"
        expires = format_time(1000 * int(min(claims["exp"], _LATEST_S)))
        name = f"jwt-{hashlib.sha256(sender.encode()).hexdigest()[:8]}"
        return {audience: Signed(name, "", audience, "", expires) for audience in self.audiences if audience in named}

    async def _key(self, kid: str) -> Key | None:
        """Return a key by its id, fetched if that may be done now."""
        now = self.clock()
        is_known = now - self._fetched < KEEP_SECONDS and kid in self._keys
        is_due = not is_known or now - self._fetched >= RENEW_SECONDS
        if is_due and self._fetching is None and now - self._asked >= AGAIN_SECONDS:
            self._asked = now
            self._fetching = asyncio.create_task(self._renew())
        if not is_known and self._fetching is not None:
            await asyncio.shield(self._fetching)
        if self.clock() - self._fetched >= KEEP_SECONDS:
            raise UncheckedError
        return self._keys.get(kid)

    async def _renew(self) -> None:
        try:
            self._keys = read_keys(await self.fetch(self.plan.jwks))
            self._fetched = self.clock()
        except (ClientError, OSError, TimeoutError, ValueError, RecursionError) as error:
            LOG.warning("the keys at %s cannot be read now: %s", self.plan.jwks, error or type(error).__name__)
        finally:
            self._fetching = None
