"""The page about the archive: its programs run, its settings are accepted, and one event comes for each segment."""

import json
import re
from pathlib import Path
from typing import Any

import boto3
import pytest
from support.archive_objects import Objects, objects_of, sample_log
from support.archive_stores import BUCKET, put_objects, s3_server
from support.doc_commands import commands_in, must_end_as_documented

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ARCHIVE.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SETTINGS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """An archive in ./tiered."""
    made = objects_of(sample_log(rounds=6))
    (tmp_path / "tiered").mkdir()
    put_objects((tmp_path / "tiered").as_uri(), made)
    monkeypatch.chdir(tmp_path)
    return made


def run(program: str, here: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(program.replace("{here}", str(here)), "ARCHIVE.md", "exec"), names)
    return names


def test_the_program_with_the_package_runs(
    objects: Objects, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(PROGRAMS[0], tmp_path)
    assert capsys.readouterr().out.startswith("orders MWJ6FHTfRYy67jzwZdeqSQ [0]")


def test_the_commands_run(objects: Objects) -> None:
    commands = [line for line in commands_in(PAGE) if line.startswith("trioka")]
    assert len(commands) == 3
    for line in commands:
        must_end_as_documented(line, None)


def test_one_event_comes_for_each_segment_and_its_receiver_needs_no_trioka(objects: Objects, tmp_path: Path) -> None:
    receive = run(PROGRAMS[1], tmp_path)["receive"]
    names = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    with s3_server() as options:
        queues = boto3.client("sqs", endpoint_url=options["endpoint"], **names)
        bucket = boto3.client("s3", endpoint_url=options["endpoint"], **names)
        queue = queues.create_queue(QueueName="segments")["QueueUrl"]
        bucket.put_bucket_notification_configuration(Bucket=BUCKET, NotificationConfiguration=SETTINGS[0])
        put_objects(f"s3://{BUCKET}", objects, options)
        events = []
        while found := queues.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
            events += [json.loads(message["Body"]) for message in found]
            for message in found:
                queues.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        for client in (queues, bucket):
            client.close()
    complete = [event for event in events if event.get("Records")]
    assert len(complete) == sum(key.endswith("rsm-manifest") for key in objects)
    batches = sorted(batch for event in complete for batch in receive(event))
    assert batches[0][0] == 0 and all(count > 0 for _, count in batches)


def test_the_lifecycle_rules_are_accepted(objects: Objects) -> None:
    names = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    with s3_server() as options:
        bucket = boto3.client("s3", endpoint_url=options["endpoint"], **names)
        bucket.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration=SETTINGS[1])
        rules = bucket.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
        bucket.close()
    assert [rule["ID"] for rule in rules] == [rule["ID"] for rule in SETTINGS[1]["Rules"]]
