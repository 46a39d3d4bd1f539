"""The package's own errors: each message says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class StreamDPError(Exception):
    """Base of every error this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: a key of the file or the name of a parameter, and what should stand there."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class _FaultyError(StreamDPError):
    """Several things may be wrong at once, and all of them are told."""

    def __init__(self, faults: Sequence[Fault] | str, path: str = "") -> None:
        self.faults = (Fault(path, faults),) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class ConfigError(_FaultyError):
    """The configuration is unusable: the file, or what it names; `faults` lists everything that is wrong."""


class ParameterError(_FaultyError):
    """A parameter of a mechanism, a noise or an account is outside its domain; `faults` lists every one."""


class StateError(StreamDPError):
    """Stored state contradicts itself or what is asked of it; going on would break a guarantee."""


class BudgetError(StreamDPError):
    """A privacy budget does not cover a call; nothing was drawn or charged."""


class BrokerError(StreamDPError):
    """The broker cannot be reached, or does not hold what it should."""


class OutageError(BrokerError):
    """The broker does not answer; asking it again later may help."""


class ClockError(StreamDPError):
    """The clocks of this machine and of the broker do not agree; starting again helps when they do."""


class AccessError(StreamDPError):
    """The cluster refuses what an account asks of it; asking again helps only once it was given the right."""


class AddressError(StreamDPError):
    """Nobody can listen at an address: another process does, or it is none of this machine."""


class StorageError(StreamDPError):
    """The folder of the local state cannot be read or written; nothing that was acknowledged is lost.

    Attributes:
        is_lasting: whether it stays so until an operator changes something; another start does not help.
    """

    def __init__(self, message: str, *, is_lasting: bool = False) -> None:
        super().__init__(message)
        self.is_lasting = is_lasting


FAILED, WRONG_CONFIGURATION = 1, 2


def exit_code(error: StreamDPError) -> int:
    """The exit code of a process that ends by an error: whether a supervisor should start it again."""
    lasting = isinstance(error, ConfigError | ParameterError) or (isinstance(error, StorageError) and error.is_lasting)
    return WRONG_CONFIGURATION if lasting else FAILED
