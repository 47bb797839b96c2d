"""Whether the cluster still owns the objects: a restored cluster has a higher incarnation (TI11)."""

import re
from typing import Final

from trioka.protocol.errors import NONE
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest

from .. import problems
from ..client.cluster_client import Kafka
from ..terminal.failure import Exit, Failure
from .bucket import Bucket

BROKER: Final = 4  # the type of resource
KEY: Final = "trioka.tier.incarnation"
_NAME: Final = re.compile(r"incarnation-([0-9]{10})\.json")


def require_latest_incarnation(kafka: Kafka, bucket: Bucket) -> None:
    """Failure if another cluster has replaced this one."""
    cluster = kafka.ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
    prefix = f"_trioka/{cluster.cluster_id}/"
    names = [_NAME.fullmatch(found.key[len(prefix) :]) for found in bucket.objects(prefix)]
    latest = max((int(name[1]) for name in names if name), default=1)
    own = _own_incarnation(kafka, cluster.brokers[0].broker_id)
    if latest > own:
        raise Failure(
            f"incarnation {latest} of cluster {cluster.cluster_id} owns {bucket.url}, and this cluster is incarnation "
            f"{own}: nothing is deleted",
            exit_code=Exit.UNHEALTHY,
        )


def _own_incarnation(kafka: Kafka, broker_id: int) -> int:
    resource = DescribeConfigsRequest.Resource(
        resource_type=BROKER, resource_name=str(broker_id), configuration_keys=[KEY]
    )
    response = kafka.ask_node(broker_id, DescribeConfigsRequest(resources=[resource], include_synonyms=False))
    for result in response.results:
        if result.error_code != NONE:
            raise problems.from_error_code(result.error_code, f"{KEY} of broker {broker_id} cannot be read")
    found = [config.value for result in response.results for config in result.configs if config.name == KEY]
    return int(found[0]) if found and found[0] else 1
