"""The records of a changelog and the worker's folder are lost: a copy of the folder brings the state back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from faust.types import TP

from stream_dp.runtime.kafka.topics import RELEASES, SIZE, Topics
from stream_dp.testing import Application, application
from tests.support.losing import two_released
from tests.support.views import only_view

pytestmark = [pytest.mark.broker, pytest.mark.slow]


async def cut_off(app: Application, topic: str) -> None:
    """Delete all records of a changelog, as a wrong policy does; the topic and its offsets stay."""
    wrong = {**Topics.of(app.plan).erasing, **SIZE, "cleanup.policy": "compact,delete"}
    ends = await app.client.ends([TP(topic, partition) for partition in range(app.plan.partitions)])
    admin = AIOKafkaAdminClient(bootstrap_servers=app.plan.broker.address)
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, wrong)])
        await admin.delete_records(
            {TopicPartition(*tp): RecordsToDelete(before_offset=end) for tp, end in ends.items()}
        )
    finally:
        await admin.close()


async def test_where_records_of_a_changelog_were_deleted_no_worker_starts_with_a_copy_of_the_folder_or_without(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        worker = spawn(app, "worker")
        before = await two_released(app, worker)
        copy = worker.data_dir.with_name("copy")
        shutil.copytree(worker.data_dir, copy)
        changelog = Topics.of(app.plan).changelog(RELEASES)
        await cut_off(app, changelog)
        for folder in (None, copy):
            shutil.rmtree(worker.data_dir, ignore_errors=True)
            if folder is not None:
                folder.rename(worker.data_dir)
            worker.start()
            assert worker.wait() == 2
            assert f"error: topic {changelog}: records of it were deleted" in worker.ending()
        assert await app.published(only_view(app).name) == before
