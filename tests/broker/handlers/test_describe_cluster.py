from pathlib import Path

from support.serving import HOST, LISTENER, ask, on_trio, running_broker

from trioka.broker.security.authorized_operations import CLUSTER_OPERATIONS, bits
from trioka.protocol.errors import BrokerIdNotRegistered, MismatchedEndpointType, UnsupportedEndpointType
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest
from trioka.protocol.messages.unregister_broker import UnregisterBrokerRequest


@on_trio
async def test_the_cluster_is_this_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for version in range(3):
            for operations in (False, True):
                request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
                response = await ask(broker, request, version)
                assert (response.error_code, response.cluster_id, response.controller_id) == (0, broker.cluster_id, 1)
                (result,) = response.brokers
                assert (result.broker_id, result.host, result.port) == (1, HOST, broker.addresses[LISTENER][1])
                assert (response.cluster_authorized_operations == bits(CLUSTER_OPERATIONS)) is operations


@on_trio
async def test_controllers_are_not_in_broker_metadata(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for endpoint_type, error in ((2, MismatchedEndpointType), (3, UnsupportedEndpointType)):
            request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
            assert (await ask(broker, request, 1)).error_code == error.code


@on_trio
async def test_a_controller_that_is_alone_tells_of_itself(tmp_path: Path) -> None:
    """Kafka's tools ask this of every controller that they are pointed at, and would ask on and on for one."""
    for _ in range(2):
        async with running_broker(tmp_path) as broker:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
            response = await ask(broker, request, 1, "CONTROLLER")
            assert (response.error_code, response.controller_id) == (0, 1)
            (result,) = response.brokers
            assert (result.broker_id, result.host, result.port) == (1, *broker.controller_addresses["CONTROLLER"][:2])


@on_trio
async def test_a_broker_can_be_forgotten_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        response = await ask(broker, UnregisterBrokerRequest(broker_id=1), 0)
        assert (response.error_code, response.error_message) == (0, "")
        response = await ask(broker, UnregisterBrokerRequest(broker_id=1), 0)
        assert response.error_code == BrokerIdNotRegistered.code
        response = await ask(broker, DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
        assert (response.brokers, response.controller_id) == ([], -1)
    async with running_broker(tmp_path) as broker:  # it comes back, and registers again
        response = await ask(broker, DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
        assert [result.broker_id for result in response.brokers] == [1]
