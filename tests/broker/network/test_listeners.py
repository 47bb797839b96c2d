"""Listeners that come and go while a broker runs."""

import contextlib
import socket
from pathlib import Path

import pytest
import trio
from support.serving import HOST, SETTINGS, ClientConnection, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

BROKER = 4
SET = 0
NONE, INVALID_REQUEST = 0, 42
PROTOCOLS = "MORE:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


async def listeners(asking: ClientConnection, text: str) -> int:
    """Sets them; the error."""
    one = IncrementalAlterConfigsRequest.Resource
    changes = [
        one.Config(name=name, config_operation=SET, value=value)
        for name, value in (("listeners", text), ("listener.security.protocol.map", PROTOCOLS))
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[one(resource_type=BROKER, resource_name="1", configs=changes)], validate_only=False
    )
    answer = await asking.ask(request, 1)
    return int(answer.responses[0].error_code)


async def until(broker: Broker, names: set[str]) -> None:
    with trio.fail_after(30):
        while set(broker.addresses) != names:
            await trio.sleep(0.01)


@on_trio
async def test_a_listener_is_opened_and_closed_while_the_broker_runs(tmp_path: Path) -> None:
    more = f"{SETTINGS['listeners']},MORE://{HOST}:{free_port()}"
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as asking:
        assert await listeners(asking, more) == NONE
        await until(broker, {"PLAINTEXT", "MORE"})
        async with ClientConnection(broker, "MORE") as other:
            assert (await other.ask(HELLO, 3)).error_code == NONE
            assert await listeners(asking, SETTINGS["listeners"]) == NONE
            await until(broker, {"PLAINTEXT"})
            with contextlib.suppress(trio.BrokenResourceError):
                assert await other.ask(HELLO, 3) is None  # the broker has hung up
        assert (await asking.ask(HELLO, 3)).error_code == NONE


@on_trio
async def test_what_was_opened_is_open_again_after_a_restart(tmp_path: Path) -> None:
    more = f"{SETTINGS['listeners']},MORE://{HOST}:{free_port()}"
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as asking:
        assert await listeners(asking, more) == NONE
    async with running_broker(tmp_path) as broker:
        await until(broker, {"PLAINTEXT", "MORE"})
        async with ClientConnection(broker, "MORE") as other:
            assert (await other.ask(HELLO, 3)).error_code == NONE


@on_trio
async def test_a_taken_port_is_reported_and_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        more = f"{SETTINGS['listeners']},MORE://{HOST}:{taken.getsockname()[1]}"
        async with running_broker(tmp_path) as broker, ClientConnection(broker) as asking:
            assert await listeners(asking, more) == NONE
            with trio.fail_after(30):
                while "cannot open listener MORE://" not in caplog.text:
                    await trio.sleep(0.01)
            assert (await asking.ask(HELLO, 3)).error_code == NONE


@on_trio
async def test_the_listener_between_brokers_stays(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as asking:
        without = f"MORE://{HOST}:{free_port()},CONTROLLER://{HOST}:0"
        assert await listeners(asking, without) == INVALID_REQUEST
        assert set(broker.addresses) == {"PLAINTEXT"}
