"""Whatever is wrong with a file that a start needs: one line, code 2, no traceback, and nothing is made or changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from stream_dp.config.access import Broker
from stream_dp.errors import ConfigError, StorageError, exit_code
from stream_dp.runtime.kafka import client as connecting
from stream_dp.runtime.kafka import cluster
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.key_file import load_keys
from stream_dp.runtime.storage import unusable
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.secured import make_certificates
from tests.support.visits import configuration

NOBODY = 65534
POWERLESS = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner,-chown"]
"""Let rights count for root as well."""
ACCESS = """
broker:
  address: localhost:1
  tls: {ca: ./ca.pem, certificate: ./broker.pem}
  sasl: {mechanism: plain, username: app, password: {file: ./password}}
registry: {url: "https://localhost:1", username: app, password: {file: ./other}}
"""
CHANGES = (
    ("broker: memory://\n", ACCESS),
    ("kind: histogram", "kind: catalogue\n    catalogue: {file: ./list.txt}"),
    ('    delta: "1e-4"\n', ""),
)

Harm = Callable[[Path], None]


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbled(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00" * 40)


def other_kind(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        path.write_bytes(b"")
    else:
        path.unlink()
        path.mkdir()


def unreadable(path: Path) -> None:
    path.chmod(0)


def of_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    path.chmod(0o700 if path.is_dir() else 0o600)
    os.chown(path, NOBODY, NOBODY)


def open_to_others(path: Path) -> None:
    path.chmod(0o644)


CONTENT: list[Harm] = [empty, truncated, garbled]
PLACE: list[Harm] = [other_kind, unreadable, of_another]
FILES: dict[str, list[Harm]] = {
    "app.yaml": [missing, *CONTENT, *PLACE],
    "secret.key": [*CONTENT, *PLACE, open_to_others],
    "ca.pem": [missing, *CONTENT, *PLACE],
    "broker.pem": [missing, *CONTENT, *PLACE],
    "password": [missing, empty, garbled, *PLACE],
    "other": [missing, empty, garbled, *PLACE],
    "list.txt": [missing, empty, garbled, *PLACE],
    "state": PLACE,
    "state/lock": PLACE,
    "state/changelogs.json": PLACE,
    "state/v1": PLACE,
    "state/v1/tables": PLACE,
    "state/v1/tables/counts-0.db": PLACE,
    "state/v1/tables/counts-0.db/CURRENT": PLACE,
}
QUICK = {("app.yaml", "garbled")}


def environment() -> dict[str, str]:
    """The present one, in which the file names the broker."""
    return {name: value for name, value in os.environ.items() if name != "STREAM_DP_BROKER"}


def database(folder: Path) -> Any:
    """A database of a table, with a file of rows."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    opened = rocksdict.Rdict(str(folder), options=options)
    opened[b"row"] = b"value" * 100
    opened.flush()
    opened[b"other"] = b"value"
    return opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of an application whose worker ran before."""
    make_certificates(tmp_path)
    (tmp_path / "app.yaml").write_text(configuration("visits", *CHANGES))
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "other").write_text("secret\n")
    (tmp_path / "list.txt").write_text("/1\n/2\n")
    load_keys(tmp_path / "secret.key")
    tables = tmp_path / "state" / "v1" / "tables"
    tables.mkdir(parents=True)
    database(tables / "counts-0.db").close()
    (tmp_path / "state" / "lock").touch()
    (tmp_path / "state" / "changelogs.json").write_text("{}")
    return tmp_path


CASES = [
    pytest.param(file, harm, id=f"{file} {name}", marks=[] if (file, name) in QUICK else [pytest.mark.slow])
    for file, harms in FILES.items()
    for harm in harms
    for name in [harm.__name__]
]


@pytest.mark.parametrize(("file", "harm"), CASES)
def test_a_start_on_a_file_that_cannot_be_used_ends_with_code_2_and_one_line(
    folder: Path, file: str, harm: Harm
) -> None:
    harm(folder / file)
    before = sorted(folder.rglob("*"))
    command = [sys.executable, "-m", "stream_dp.cli", "worker", str(folder / "app.yaml"), "--start-within", "1s"]
    if os.geteuid() == 0:
        command = [*POWERLESS, *command]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WITHIN_SECONDS, check=False, env=environment()
    )
    said = done.stderr
    assert done.returncode == 2, said
    assert "Traceback" not in said
    (error,) = re.findall(r"(?im)^error: .*$", said)
    assert said.endswith(f"{error}\n") or file == "app.yaml", said
    assert Path(file).name in error or file in ("app.yaml", "list.txt"), said
    assert sorted(folder.rglob("*")) == before


DAMAGES: list[tuple[str, Harm]] = [
    ("*.sst", missing),
    ("*.sst", empty),
    ("*.sst", truncated),
    ("*.sst", garbled),
    ("*.sst", other_kind),
    ("CURRENT", empty),
    ("CURRENT", garbled),
    ("MANIFEST-*", missing),
    ("MANIFEST-*", empty),
    ("MANIFEST-*", other_kind),
]


@pytest.mark.parametrize(("file", "harm"), DAMAGES)
def test_a_damaged_copy_of_a_table_is_lasting_and_the_remedy_is_to_delete_it(
    tmp_path: Path, file: str, harm: Harm
) -> None:
    database(tmp_path / "db").close()
    harm(next((tmp_path / "db").glob(file)))
    with pytest.raises(Exception, match=r"\w") as caught:
        list(database(tmp_path / "db").items())
    failure = unusable(tmp_path / "db", caught.value)
    assert exit_code(failure) == 2
    assert "delete it" in str(failure) or "move that away" in str(failure)
    assert "row" not in str(failure)


@pytest.mark.parametrize("reason", ["No space left on device", "Input/output error", "Read-only file system"])
def test_a_disk_that_may_recover_is_a_reason_to_start_again(reason: str) -> None:
    assert exit_code(unusable(Path("/x"), OSError(5, reason))) == 1
    assert exit_code(StorageError("full")) == 1


class _Client:
    """A client of a broker that starts at once."""

    def __init__(self, **_: Any) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def close(self) -> None: ...


class _Consumer(_Client):
    """What aiokafka's does: a task of its own, whose end it awaits when it stops."""

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._task.cancel()
        await self._task

    @staticmethod
    async def _run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def test_an_error_right_behind_the_connection_is_not_hidden_by_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "AIOKafkaProducer", _Client)
    monkeypatch.setattr(connecting, "AIOKafkaAdminClient", _Client)
    monkeypatch.setattr(cluster, "AIOKafkaConsumer", _Consumer)
    with pytest.raises(ConfigError, match="the key file"):
        async with connect(Broker("kafka://localhost:1")):
            raise ConfigError("the key file")


def test_what_a_worker_makes_is_open_to_its_account_alone(folder: Path) -> None:
    shutil.rmtree(folder / "state")
    (folder / "app.yaml").write_text(configuration("visits", ("memory://", "localhost:1")))
    command = [sys.executable, "-m", "stream_dp.cli", "worker", str(folder / "app.yaml"), "--start-within", "1s"]
    done = subprocess.run(
        command, capture_output=True, timeout=WITHIN_SECONDS, check=False, umask=0o022, env=environment()
    )
    assert done.returncode == 1, done.stderr
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("state*/**/*")} == {"lock": 0o600}
    assert stat.S_IMODE((folder / "state").stat().st_mode) == 0o700
