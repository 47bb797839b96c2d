"""`trioka tier lifecycle --print`: rules for the bucket, as S3 takes them (PutBucketLifecycleConfiguration).

    aws s3api put-bucket-lifecycle-configuration --bucket b --lifecycle-configuration file://rules.json

Setting rules replaces all that the bucket has. One rule ends multipart uploads that were abandoned: nothing else
deletes their parts, and a listing does not show them. The others delete objects of a topic some time after its
retention, in case a cluster is gone. A rule must never be shorter than the retention: records are lost then, which is
noticed and counted (trioka_tier_missing_segments_total), and not prevented.
"""

import json
from math import ceil
from typing import Any, Final

import click

from trioka.protocol.errors import NONE, UnknownTopicOrPartition
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.remote_segment.object_key import topic_directory

from .. import problems
from ..client.cluster_client import Kafka
from ..options import with_kafka
from ..terminal.output import write_stdout

DAY_MS: Final = 24 * 60 * 60 * 1000
MARGIN_DAYS: Final = 7  # rules run once a day, and can be days late or early
TOPIC: Final = 2  # the type of resource
MAX_ID_CHARS: Final = 255
KEYS: Final = ("remote.storage.enable", "retention.ms")


@click.command("lifecycle")
@with_kafka
@click.option("--print", "is_printed", is_flag=True, required=True, help="the rules, as JSON")
@click.option("--prefix", default="", metavar="PREFIX", help="of trioka.tier.url, behind the bucket")
def lifecycle(kafka: Kafka, is_printed: bool, prefix: str) -> None:
    """Rules for the bucket, from the retention of tiered topics."""
    start = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    rules: list[dict[str, Any]] = [
        {
            "ID": "trioka: abandoned uploads",
            "Status": "Enabled",
            "Filter": {"Prefix": start},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        }
    ]
    ids = {topic.name: topic.topic_id for topic in kafka.cluster().topics if topic.name is not None}
    for name, topic_id in sorted(ids.items()):
        retention_ms = _retention_ms(kafka, name)
        if retention_ms is not None and retention_ms >= 0:
            rules.append(
                {
                    "ID": f"trioka: {name}"[:MAX_ID_CHARS],
                    "Status": "Enabled",
                    "Filter": {"Prefix": start + topic_directory(name, topic_id)},
                    "Expiration": {"Days": ceil(retention_ms / DAY_MS) + MARGIN_DAYS},
                }
            )
    write_stdout(json.dumps({"Rules": rules}, indent=2))


def _retention_ms(kafka: Kafka, topic: str) -> int | None:
    """None for a topic that is not tiered."""
    resource = DescribeConfigsRequest.Resource(resource_type=TOPIC, resource_name=topic, configuration_keys=list(KEYS))
    response = kafka.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=False))
    for result in response.results:
        if result.error_code == UnknownTopicOrPartition.code:
            return None  # it was deleted meanwhile
        if result.error_code != NONE:
            raise problems.from_error_code(result.error_code, f"the configuration of topic {topic} cannot be read")
    found = {config.name: config.value for result in response.results for config in result.configs}
    if found.get("remote.storage.enable") != "true":
        return None
    return int(found["retention.ms"] or -1)
