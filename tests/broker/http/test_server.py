"""The HTTP server: what is served to whom, and what becomes of those who dribble, shout or lie."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType

import pytest
import trio
import trio.testing
from mutants.plant import assert_noticed, planted
from support.http_scrapes import exchanged, get, watched
from support.serving import LISTENER, ask, new_broker, on_trio, running_broker

from trioka.broker.config.layers import Config
from trioka.broker.http import connection_limits as http_connections
from trioka.broker.http import health
from trioka.broker.http import protocol as http_talk
from trioka.broker.http.server import open_http_server
from trioka.broker.membership.lifecycle import Membership
from trioka.broker.metrics.loop_watch import LoopWatch
from trioka.broker.network.listener import PortInUse, listen
from trioka.protocol.messages.metadata import MetadataRequest

ADDRESS = "127.0.0.1:0"
PATHS = ["/metrics", "/livez", "/readyz", "/startupz"]


# What is decided.


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:10092", "127.0.0.1:1", "10.2.3.4", "[::1]:5", "::1", "a.lan"])
def test_addresses_localhost_and_names_of_the_list_may_ask(host: str) -> None:
    assert http_talk.is_allowed(host, ["a.lan"])


def any_other_name_is_refused(talk: ModuleType) -> None:
    for host in ("evil.example", "evil.example:10092", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        refused = talk.refusal("GET", "/metrics", host, ["a.lan"])
        assert refused is not None and refused.status == 421, host
    assert talk.refusal("GET", "/metrics", "evil.example", ["*"]) is None


def only_get_and_head_are_served(talk: ModuleType) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"):
        refused = talk.refusal(method, "/metrics", "localhost", [])
        assert refused is not None and refused.status == 405 and ("allow", "GET, HEAD") in refused.headers
    assert talk.refusal("HEAD", "/metrics", "localhost", []) is None


def another_path_is_answered_in_one_sentence(talk: ModuleType) -> None:
    refused = talk.refusal("GET", "/metric", "localhost", [])
    assert refused is not None and refused.status == 404
    assert refused.body == "There is nothing at /metric; there are /metrics, /livez, /readyz and /startupz."
    assert len(talk.refusal("GET", "/" + "x" * 9000, "localhost", []).body) < 300


RULES = [any_other_name_is_refused, only_get_and_head_are_served, another_path_is_answered_in_one_sentence]


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_holds(rule: object) -> None:
    rule(http_talk)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("not is_allowed(host, hosts)", "not hosts", any_other_name_is_refused),
        ('name == "localhost" or', 'name.startswith("localhost") or', any_other_name_is_refused),
        ('("GET", "HEAD")', '("GET", "HEAD", "POST")', only_get_and_head_are_served),
        (
            "len(text) <= MAX_SHOWN",
            "len(text) <= 10_000",
            another_path_is_answered_in_one_sentence,
        ),
    ],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: object) -> None:
    assert_noticed(http_talk, right, wrong, rule)  # type: ignore[arg-type]


# What is done, over real sockets.


@on_trio
async def test_a_broker_that_serves_is_alive_started_and_ready(tmp_path: Path) -> None:
    async with running_broker(tmp_path, trioka_http_listeners=ADDRESS) as broker, watched(broker) as http_server:
        for path in ("/livez", "/startupz", "/readyz"):
            assert (await get(http_server, path))[::2] == (200, "ok\n")
        status, head, body = await get(http_server, "/metrics")
        assert status == 200 and "text/plain; version=0.0.4" in head and "kafka_brokers 1.0\n" in body
        status, head, body = await get(http_server, "/metrics", method="HEAD")
        assert (status, body) == (200, "")
        assert (await get(http_server, "/nothing"))[0] == 404
        assert (await get(http_server, "/metrics", host="evil.example"))[0] == 421
        async with await trio.open_tcp_stream(*broker.addresses[LISTENER]) as kafka_port:
            await kafka_port.send_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert f"http://127.0.0.1:{http_server.address[1]}/metrics" in (await kafka_port.receive_some()).decode()


@on_trio
async def test_a_log_directory_that_is_offline_is_a_reason_not_to_be_ready(tmp_path: Path) -> None:
    both = f"{tmp_path}/a,{tmp_path}/b"
    async with running_broker(both, trioka_http_listeners=ADDRESS) as broker, watched(broker) as http_server:
        broker.directories[1].volume.fail(OSError(5, "broken"))
        status, _, body = await get(http_server, "/readyz")
        assert status == 503
        assert body == f"The log directory {tmp_path}/b is offline: [Errno 5] broken.\n"
        assert (await get(http_server, "/livez"))[0] == (await get(http_server, "/startupz"))[0] == 200
        body = (await get(http_server, "/metrics"))[2]
        assert f'trioka_log_directory_offline{{directory="{tmp_path}/b"}} 1.0\n' in body
        assert "kafka_log_logmanager_offlinelogdirectorycount 1.0\n" in body


@on_trio
async def test_a_broker_that_stops_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path, trioka_http_listeners=ADDRESS) as broker, watched(broker) as http_server:
        broker.stop()
        status, _, body = await get(http_server, "/readyz")
        assert (status, body) == (503, "The broker is stopping.\n")


@on_trio
async def test_several_requests_of_one_connection_are_answered_in_their_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path, trioka_http_listeners=ADDRESS) as broker, watched(broker) as http_server:
        one = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
        last = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        heard = await exchanged(http_server, one % b"livez" + one % b"nothing" + last)
        assert [int(part[1:4]) for part in heard.split(b"HTTP/1.1")[1:]] == [200, 404, 200]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000, 431),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
        (b"\x00\x00\x00\x10\x00\x12\x00\x00\x00\x00\x00\x07\r\n\r\n", 400),
    ],
)
@on_trio
async def test_what_is_no_request_is_answered_and_sent_away(tmp_path: Path, said: bytes, status: int) -> None:
    async with at_the_http_server(new_broker(tmp_path)) as client:
        await client.send_all(said)
        assert (await everything(client)).startswith(b"HTTP/1.1 %d " % status)


# Without a network, on a clock that jumps.


@asynccontextmanager
async def at_the_http_server(broker: object) -> AsyncIterator[trio.abc.Stream]:
    """The client's end of a conversation with a broker that has not been started."""
    ours, theirs = trio.testing.memory_stream_pair()
    session = http_talk.HttpSession(broker, LoopWatch(broker), trio.CapacityLimiter(1))  # type: ignore[arg-type]

    async def serve() -> None:
        await http_talk.serve_connection(theirs, session)
        await theirs.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield ours
        nursery.cancel_scope.cancel()


async def everything(stream: trio.abc.Stream) -> bytes:
    heard = b""
    while more := await stream.receive_some(4096):
        heard += more
    return heard


def jumping(test: object) -> float:
    """Runs it on a clock that jumps. How long it took there."""

    async def measured() -> float:
        began = trio.current_time()
        await test()  # type: ignore[operator]
        return trio.current_time() - began

    return float(trio.run(measured, clock=trio.testing.MockClock(autojump_threshold=0)))


def a_head_that_dribbles_has_five_seconds(talk: ModuleType, broker: object) -> None:
    async def dribble() -> None:
        async with at_the_http_server(broker) as client:
            await client.send_all(b"GET /livez HT")
            assert (await everything(client)).startswith(b"HTTP/1.1 408 ")

    assert 4 < jumping(dribble) < 6


def test_a_request_must_be_complete_in_five_seconds(tmp_path: Path) -> None:
    a_head_that_dribbles_has_five_seconds(http_talk, new_broker(tmp_path))


def test_a_silent_client_is_sent_away_after_five_seconds(tmp_path: Path) -> None:
    async def say_nothing() -> None:
        async with at_the_http_server(new_broker(tmp_path)) as client:
            assert await everything(client) == b""

    assert 4 < jumping(say_nothing) < 6


def test_a_client_that_has_asked_once_may_keep_its_connection_for_two_minutes(tmp_path: Path) -> None:
    async def ask_once() -> None:
        async with at_the_http_server(new_broker(tmp_path)) as client:
            await client.send_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await everything(client)).startswith(b"HTTP/1.1 200 ")

    assert 119 < jumping(ask_once) < 121


def test_a_client_that_does_not_read_is_disconnected_after_a_minute(tmp_path: Path) -> None:
    async def do_not_read() -> None:
        ours, theirs = trio.testing.lockstep_stream_pair()
        broker = new_broker(tmp_path)
        session = http_talk.HttpSession(broker, LoopWatch(broker), trio.CapacityLimiter(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(http_talk.serve_connection, theirs, session)
            await ours.send_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert 59 < jumping(do_not_read) < 61


@on_trio
async def test_before_the_logs_are_loaded_it_is_alive_and_not_started(tmp_path: Path) -> None:
    broker = new_broker(tmp_path)
    for path, status in (("/livez", 200), ("/startupz", 503), ("/readyz", 503), ("/metrics", 200)):
        async with at_the_http_server(broker) as client:
            await client.send_all(b"GET %s HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\n\r\n" % path.encode())
            assert (await everything(client)).startswith(b"HTTP/1.1 421 ")
        async with at_the_http_server(broker) as client:
            await client.send_all(b"GET %s HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n" % path.encode())
            heard = await everything(client)
            assert heard.startswith(b"HTTP/1.1 %d " % status), path
            assert (b"The logs are being loaded." in heard) == (status == 503)


async def ready_when_clients_are_answered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_let_in, may_go_on = trio.Event(), trio.Event()

    async def introduce(membership: Membership) -> None:
        is_let_in.set()
        await may_go_on.wait()

    monkeypatch.setattr(Membership, "_report_to_controller", introduce)
    broker = new_broker(folder)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await is_let_in.wait()
        assert broker.alive == {1}, "the cluster knows it"
        assert health.why_not_ready(broker) == ["No listener for clients is open."]
        may_go_on.set()
        while health.why_not_ready(broker):
            await trio.sleep(0.001)
        assert (await ask(broker, MetadataRequest(topics=None), 12)).brokers
        broker.stop()


@on_trio
async def test_it_is_ready_when_clients_are_answered_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready_when_clients_are_answered(tmp_path, monkeypatch)


def test_a_listener_of_controllers_that_passes_for_one_of_clients_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken = planted(
        health,
        "not broker.listener_manager.is_open or not broker.network.is_listening",
        "not broker.network.is_listening",
    )
    monkeypatch.setattr(health, "why_not_ready", mistaken.why_not_ready)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        on_trio(ready_when_clients_are_answered)(tmp_path, monkeypatch)


# Where it is.


def test_there_is_no_http_server_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert open_http_server(Config({})) is None


def test_the_first_free_address_is_taken() -> None:
    busy = listen("x", "127.0.0.1", 0)
    try:
        port = busy.address[1]
        http_server = open_http_server(Config({"trioka.http.listeners": f":{port},:0"}))
        assert http_server is not None
        assert http_server.address[0] == "127.0.0.1" and http_server.address[1] != port
        assert http_server.ports_in_use == [port]
        http_server._listener.socket.close()
        with pytest.raises(PortInUse) as taken:
            open_http_server(Config({"trioka.http.listeners": f":{port}"}))
        assert taken.value.port == port
    finally:
        busy.socket.close()


# Too many of them.


def of_one_address_the_longest_silent_goes(module: ModuleType) -> None:
    held = module.HttpConnections(most=9, per_address=3)
    assert [held.enter(name, "x") for name in "abc"] == [None] * 3
    held.on_request("a")
    held.on_request("b")
    held.on_response("a")  # it has asked, and so was silent for a shorter time than c
    assert held.enter("d", "x") == "c"
    assert held.enter("e", "y") is None, "another address"
    assert held.enter("f", "x") == "a"
    assert len(held) == 4


def among_those_that_are_answered_the_oldest_goes(module: ModuleType) -> None:
    held = module.HttpConnections(most=9, per_address=2)
    for name in "ab":
        held.enter(name, "x")
        held.on_request(name)
    assert held.enter("c", "x") == "a"
    assert held.enter("d", "x") == "c", "the silent one, though it is younger"


def the_address_with_most_connections_gives_one_up(module: ModuleType) -> None:
    held = module.HttpConnections(most=5, per_address=4)
    for number, address in enumerate("pxxxp"):
        assert held.enter(number, address) is None
    assert held.enter(5, "q") == 1
    held.leave(0)
    assert held.enter(6, "q") is None, "there is room"
    assert len(held) == 5


CROWDS = [
    of_one_address_the_longest_silent_goes,
    among_those_that_are_answered_the_oldest_goes,
    the_address_with_most_connections_gives_one_up,
]


@pytest.mark.parametrize("rule", CROWDS)
def test_when_there_are_too_many_the_right_one_goes(rule: Callable[[ModuleType], None]) -> None:
    rule(http_connections)


CROWD_MISTAKES = [
    ("(self._waiting, self._answered)", "(self._answered, self._waiting)", CROWDS[1]),
    ("max(addresses, key=addresses.count)", "addresses[0]", CROWDS[2]),
    ("            self.leave(closed)\n", "            pass\n", CROWDS[0]),
    ("addresses.count(coming) >= self._per_address", "False", CROWDS[0]),
    (
        "if address is not None:\n    self._waiting[connection] = address",
        "if address is not None:\n    pass",
        CROWDS[0],
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), CROWD_MISTAKES)
def test_a_wrong_eviction_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(http_connections, right, wrong, rule)


async def a_probe_gets_through(folder: Path, said: bytes) -> None:
    """Beside three times as many connections as there may be, from the same address, which say this and no more."""
    async with running_broker(folder, trioka_http_listeners=ADDRESS) as broker, watched(broker) as http_server:
        crowd: list[trio.SocketStream] = []
        try:
            for _ in range(3 * http_connections.MAX_CONNECTIONS):
                crowd.append(await trio.open_tcp_stream(*http_server.address))
                with suppress(trio.BrokenResourceError):
                    await crowd[-1].send_all(said)
            for path in ("/livez", "/readyz", "/startupz"):
                with trio.fail_after(30):
                    assert (await get(http_server, path))[0] == 200
            assert len(http_server.connections) <= http_connections.MAX_CONNECTIONS
        finally:
            for stream in crowd:
                await trio.aclose_forcefully(stream)


SAID = [b"", b"GET /li", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"]


@pytest.mark.parametrize("said", SAID)
@on_trio
async def test_a_probe_gets_through_a_crowd(tmp_path: Path, said: bytes) -> None:
    await a_probe_gets_through(tmp_path, said)


@on_trio
async def test_a_server_that_refuses_new_connections_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(http_connections.HttpConnections[trio.CancelScope]):
        def enter(self, connection: trio.CancelScope, address: str) -> trio.CancelScope | None:
            if len(self) < http_connections.MAX_PER_ADDRESS:
                return super().enter(connection, address)
            return connection

    monkeypatch.setattr("trioka.broker.http.server.HttpConnections", Full)
    with pytest.raises((Exception, BaseExceptionGroup)):
        await a_probe_gets_through(tmp_path, b"GET /li")
