"""Any Kafka client reads what is published: those of the package indexes, with nothing beside them.

They are installed once, in an environment of their own, `.venv-stock`, and made anew when the versions here change.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from stream_dp.records.codec import encode, encode_parts, parse
from stream_dp.records.history import History
from stream_dp.testing import Application
from stream_dp.windows.effects import Message
from tests.support.reading import Launch, readable
from tests.support.stock import ENVIRONMENT, install_node, made

pytestmark = [pytest.mark.package, pytest.mark.broker, pytest.mark.slow]

CHECKOUT = Path(__file__).parents[2]
PYTHON_CLIENTS = ("kafka-python==3.0.12", "confluent-kafka==2.16.1")
NODE_CLIENT = "kafkajs@2.2.4"

KAFKA_PYTHON = """
import base64, json, sys
from kafka import KafkaConsumer, TopicPartition
servers, topic, partitions, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False)
consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
for _, message in zip(range(count), consumer):
    print(json.dumps([base64.b64encode(part or b"").decode() for part in (message.key, message.value)]), flush=True)
consumer.close()
"""
CONFLUENT = """
import base64, json, sys
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
servers, topic, partitions, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
consumer = Consumer({"bootstrap.servers": servers, "group.id": "stock", "enable.auto.commit": False})
consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
for _ in range(count):
    (message,) = consumer.consume(1)
    assert not message.error(), message.error()
    print(json.dumps([base64.b64encode(part or b"").decode() for part in (message.key(), message.value())]), flush=True)
consumer.close()
"""
KAFKAJS = """
const { Kafka, logLevel } = require("kafkajs");
const [servers, topic, , count] = process.argv.slice(1);
const kafka = new Kafka({ brokers: servers.split(","), logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: `stock-${topic}` });
let left = Number(count);
const text = (part) => (part || Buffer.alloc(0)).toString("base64");
(async () => {
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  consumer.on(consumer.events.CRASH, ({ payload }) => { console.error(payload.error); process.exit(1); });
  await consumer.run({
    eachMessage: async ({ message }) => {
      console.log(JSON.stringify([text(message.key), text(message.value)]));
      left -= 1;
      if (left === 0) process.exit(0);
    },
  });
})();
"""


def run(*command: str | Path) -> str:
    """What a command prints."""
    done = subprocess.run(command, cwd=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{command[0]} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _install_python(folder: Path, clients: Sequence[str]) -> None:
    subprocess.run((sys.executable, "-m", "venv", "--clear", folder), check=True, capture_output=True)
    pip = (folder / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    subprocess.run((*pip, *clients), check=True, capture_output=True)


@pytest.fixture(scope="session")
def environment() -> Iterator[Path]:
    """The folder of the clients of Python; skips where they cannot be had."""
    with made("python", PYTHON_CLIENTS, _install_python) as folder:
        yield folder


@pytest.fixture(scope="session")
def node_folder() -> Iterator[Path]:
    """The folder of the client of Node.js; skips where there is no Node.js, or no client."""
    with made("node", (NODE_CLIENT,), install_node) as folder:
        yield folder


@pytest.fixture
def broker(kafka: str) -> str:
    """The embedded log has no other readers."""
    return kafka


def test_nothing_else_is_installed_beside_the_clients_of_python(environment: Path) -> None:
    frozen = run(environment / "bin" / "python", "-m", "pip", "freeze").splitlines()
    assert sorted(frozen) == sorted(PYTHON_CLIENTS)


async def zip_again(app: Application, topic: str) -> None:
    """Append the newest record of a topic as a cluster that compresses keeps it."""
    key, value = (await app.read(topic))[-1]
    async with AIOKafkaProducer(bootstrap_servers=app.plan.broker.address, compression_type="gzip") as producer:
        await producer.send_and_wait(topic, value, key, 0)


async def test_every_client_reads_a_release_topic_and_the_dead_letters(
    environment: Path, node_folder: Path, launch: Launch
) -> None:
    app, releases, letters = await readable(launch)
    await zip_again(app, releases)
    python = environment / "bin" / "python"
    clients: dict[str, tuple[str | Path, str, str]] = {
        "kafka-python": (python, "-c", KAFKA_PYTHON),
        "confluent-kafka": (python, "-c", CONFLUENT),
        "kafkajs": (
            "node",
            "-e",
            KAFKAJS.replace('require("kafkajs")', f'require("{node_folder}/node_modules/kafkajs")'),
        ),
    }
    for topic in (releases, letters):
        rows = [(key or b"", value or b"") for key, value in await app.read(topic)]
        partitions = await app.client.partitions(topic)
        words = (app.plan.broker.address, topic, str(partitions), str(len(rows)))
        for name, client in clients.items():
            told = [json.loads(line) for line in (await asyncio.to_thread(run, *client, *words)).splitlines()]
            found = [tuple(base64.b64decode(part) for part in row) for row in told]
            assert sorted(found) == sorted(rows), (name, topic)
    types = {json.loads(value)["type"] for _, value in await app.read(releases) if value is not None}
    assert types == {"release", "refusal", "view"}


async def test_the_program_of_the_documents_finds_the_newest_release_of_every_window(
    environment: Path, launch: Launch, tmp_path: Path
) -> None:
    """Also where releases come in parts, repeated, and with parts of a revision that never becomes whole."""
    program, _ = re.findall(r"```python\n(.*?)```", (CHECKOUT / "docs" / "reading.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "newest.py").write_text(program, encoding="utf-8")
    app, topic, _ = await readable(launch)
    history = History()
    for _, value in await app.read(topic):
        history.take(parse(value or b""))
    sharper = max(history.releases(), key=lambda release: len(release.items)).model_copy(update={"revision": 8})
    stray = sharper.model_copy(update={"revision": 9})
    parts = [encode_parts(release, len(encode(release)) - 1) for release in (sharper, stray)]
    rows = [*parts[0][::-1], *parts[0], *parts[1][:-1]]
    assert len(parts[0]) > 1
    await app.client.publish([Message(topic, key, value) for key, value in rows])
    for _, value in rows:
        history.take(parse(value))

    python, servers = environment / "bin" / "python", app.plan.broker.address
    said = await asyncio.to_thread(run, python, tmp_path / "newest.py", servers, topic)

    assert [json.loads(line) for line in said.splitlines()] == [
        [r.window.start, r.window.end, r.revision, r.level.name, {row.item: row.count for row in r.items}]
        for r in sorted(history.releases(), key=lambda release: release.window.start_ms)
    ]
    assert 8 in {release.revision for release in history.releases()}
