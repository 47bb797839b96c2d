"""Over TLS a broker with fast paths and one without get the same bytes, and respond, store and count the same.

`test_equivalence.py` passes bytes to connections without sockets. Here they pass real sockets and `TlsTransport`, in
random pieces, some requests damaged by a bit.
"""

import ssl
from pathlib import Path
from random import Random

import pytest
import trio
from support.certificates import authority, client_tls, signed
from support.fast_path_pair import TOPICS, Pair, damaged, fetch
from support.fast_paths import both_ways, counted_uses, framed, produce, records
from support.serving import on_trio
from support.tls_broker import HELLO, read_frame, tls_settings, tls_socket

from trioka.broker.broker import Broker
from trioka.broker.fastpath.fetch import FetchFastPath
from trioka.broker.fastpath.produce import ProduceFastPath
from trioka.broker.security.guard import ANONYMOUS

REQUESTS = 60
BARRIER_ID = HELLO[8:12]


def generated(broker: Broker, random: Random) -> list[list[bytes]]:
    """Pieces of each request. Fetches find records, so that no damaged one waits for more."""
    version, requests, sequence = random.choice((9, 12, 13)), [], 0
    for number in range(1, REQUESTS + 1):
        index = random.choice((0, 0, 0, 1))
        if number < 6 or random.random() < 0.5:
            data = records(random.randbytes(random.choice((10, 100, 40_000))))
            if index == 0 and random.random() < 0.4:
                data, sequence = records(b"numbered", producer=(7, 0, sequence), count=2), sequence + 2
            frame = framed(produce(broker, data, version, partition=index), version, number)
        else:
            frame = framed(fetch(broker, version, 0, 0), version, number)
        if number % 5 == 0:
            frame = damaged(random, frame)
        cut = random.randrange(len(frame))
        requests.append([frame[:cut], frame[cut:]] if random.random() < 0.3 else [frame])
    return requests


def conversation(broker: Broker, context: ssl.SSLContext, requests: list[list[bytes]]) -> list[list[bytes]]:
    """The responses to each request, before that of an ApiVersions behind it; then a new connection if the broker has
    closed this one."""
    found: list[list[bytes]] = []
    left = iter(requests)
    pieces = next(left, None)
    while pieces is not None:
        with tls_socket(broker, context) as sock:
            while pieces is not None:
                responses: list[bytes] = []
                found.append(responses)
                try:
                    for piece in (*pieces, HELLO):
                        sock.sendall(piece)
                    while (response := read_frame(sock)) and response[:4] != BARRIER_ID:
                        responses.append(response)
                except (ssl.SSLError, ConnectionError):
                    response = b""
                pieces = next(left, None)
                if not response:
                    break
    return found


@pytest.mark.parametrize("seed", range(3))
@on_trio
async def test_fast_paths_over_tls_respond_store_and_count_as_the_general_path(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses = counted_uses(monkeypatch)
    issuer = authority()
    context = client_tls(issuer, None, tmp_path)
    settings = tls_settings(signed(issuer), issuer, tmp_path)
    async with both_ways(tmp_path, TOPICS, **settings) as made:
        both = Pair(*made.brokers)
        requests = generated(both.brokers[0], Random(seed))
        one, other = [await trio.to_thread.run_sync(conversation, each, context, requests) for each in both.brokers]
        assert one == other
        assert len(one) == REQUESTS
        both.compare()
        assert uses[ProduceFastPath, ANONYMOUS] and uses[FetchFastPath, ANONYMOUS]
