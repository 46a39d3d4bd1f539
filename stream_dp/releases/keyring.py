"""The application's part of what coarser levels are locked with (`sealed.lock`): windows to come use the newest.

The other part is each window's own and goes with it (`WindowNoise`, `expiry`). Each window is read with the key that it
was sealed with, as long as it is retained: read with another one, a coarser level would be random numbers.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from stream_dp.errors import ConfigError

_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class PrfKey:
    """A secret and its name.

    Attributes:
        id: 16 hexadecimal digits that do not tell the secret.
        secret: 32 bytes; None where the key is retired.
    """

    id: str
    secret: bytes | None = field(repr=False)

    @classmethod
    def of(cls, secret: bytes) -> PrfKey:
        """A secret under its name."""
        return cls(hmac.digest(secret, b"stream-dp key id", "sha256")[:_ID_BYTES].hex(), secret)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of an application, oldest first.

    Attributes:
        keys: one that is not retired at least. The first names the application for ever, retired or not.
    """

    keys: tuple[PrfKey, ...]

    @classmethod
    def of(cls, *secrets: bytes) -> KeyRing:
        """The ring of some secrets, oldest first."""
        return cls(tuple(map(PrfKey.of, secrets)))

    @property
    def application(self) -> str:
        """Id of the application on its cluster: that of its first key."""
        return self.keys[0].id

    @property
    def newest(self) -> tuple[str, bytes]:
        """Id and secret of the key that windows are sealed with."""
        return list(self.secrets.items())[-1]

    @property
    def agreed(self) -> list[tuple[str, bool]]:
        """Fingerprint that workers of one application agree on: the ids of the keys, and which are retired."""
        return [(key.id, key.secret is None) for key in self.keys]

    @property
    def secrets(self) -> Mapping[str, bytes]:
        """The secrets by id, those of retired keys left out."""
        return {key.id: key.secret for key in self.keys if key.secret is not None}

    def check(self, view: str, sealed: Collection[str]) -> None:
        """Refuse to go on without a key that retained windows were sealed with.

        Args:
            view: the view.
            sealed: the ids of those keys.

        Raises:
            ConfigError: some are not in the ring.
        """
        if missing := sorted({*sealed}.difference(key.id for key in self.keys)):
            which = f"key {missing[0]}" if len(missing) == 1 else f"keys {', '.join(missing)}"
            raise ConfigError(
                f"it lacks {which}, which retained windows of view {view} were sealed with; copy the file of a worker "
                "that has it, or, if it is lost, `stream-dp keys retire FILE ID`: these windows are never sharpened "
                "then",
                path="key_file",
            )
