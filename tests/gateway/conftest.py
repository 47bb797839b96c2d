"""A broker and a gateway in front of it for the tests of a file; each test takes a topic of its own.

They end with the file: a broker in a thread must not run beside simulations, which replace trio's threads.
"""

from collections.abc import Iterator
from itertools import count

import grpc
import pytest
from support.gateway import GatewayUnderTest

from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.testing.broker import Broker

NUMBERS = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def gateway(broker: Broker) -> Iterator[GatewayUnderTest]:
    with GatewayUnderTest(broker.bootstrap_servers) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def channel(gateway: GatewayUnderTest) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(gateway.grpc) as channel:
        yield channel


@pytest.fixture(scope="module")
def log(channel: grpc.Channel) -> LogServiceStub:
    return LogServiceStub(channel)


@pytest.fixture(scope="module")
def admin(channel: grpc.Channel) -> AdminServiceStub:
    return AdminServiceStub(channel)


@pytest.fixture
def topic(broker: Broker) -> str:
    """Of two partitions."""
    return broker.create_topic(f"topic-{next(NUMBERS)}", 2)
