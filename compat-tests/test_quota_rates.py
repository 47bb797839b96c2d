"""Throttle times are those that Kafka's own classes compute, for 36,000 random records."""

from random import Random
from typing import NamedTuple

import pytest
from oracle import run_program

from trioka.cluster.quota_rates import Rate, TokenBucket

pytestmark = pytest.mark.usefixtures("apache_kafka")

CLIENTS = 360
RECORDS = 100  # of each
NOW_MS = 1_700_000_000_000
GAPS_MS = (0, 0, 1, 7, 60, 400, 999, 1000, 1001, 2500, 11_000, 30_000)


class Line(NamedTuple):
    client: int
    kind: str
    quota: float
    windows: int
    window_s: int
    now_ms: int
    value: float


def random_records(random: Random) -> list[Line]:
    """Of clients that are busy, idle, far above and far below their quota, in turns."""
    lines = []
    for client in range(CLIENTS):
        kind = random.choice(("rate", "rate", "strict", "permissive"))
        windows, window_s = random.choice(((11, 1), (11, 1), (2, 1), (1, 1), (5, 3)))
        quota = random.choice((1, 10, 1000, 1 << 20, 0.7))
        now_ms = NOW_MS + random.randrange(5000)
        values = random.choice((lambda q: q * random.random(), lambda q: random.randrange(1, 3 * int(q) + 2)))
        gaps = random.choices(GAPS_MS, k=4)
        for _ in range(RECORDS):
            now_ms += random.choice(gaps)
            value = values(quota)
            if kind == "rate" and random.random() < 0.1:
                value = -value  # what was recorded is taken back
            lines.append(Line(client, kind, quota, windows, window_s, now_ms, value))
    return lines


def throttle_times(lines: list[Line]) -> list[int]:
    used: dict[int, Rate | TokenBucket] = {}
    found = []
    for line in lines:
        new = Rate if line.kind == "rate" else TokenBucket
        counter = used.setdefault(line.client, new(line.windows, line.window_s * 1000))
        if isinstance(counter, Rate):
            counter.record(line.value, line.now_ms)
            found.append(counter.throttle_ms(line.quota, line.now_ms) if line.value >= 0 else 0)
            continue
        throttle_ms = counter.throttle_ms(line.quota, line.now_ms)
        if line.kind == "permissive" or not throttle_ms:
            counter.take(line.value, line.quota, line.now_ms)
        found.append(counter.throttle_ms(line.quota, line.now_ms) if line.kind == "permissive" else throttle_ms)
    return found


def test_throttle_times_are_kafkas() -> None:
    lines = random_records(Random(1))
    text = run_program("Quotas", stdin="".join(f"{' '.join(map(str, line))}\n" for line in lines))
    kafkas, ours = [int(word) for word in text.split()], throttle_times(lines)
    assert len(kafkas) == CLIENTS * RECORDS
    assert sum(each > 0 for each in kafkas) > CLIENTS * RECORDS // 10
    differences = [(line, one, other) for line, one, other in zip(lines, kafkas, ours, strict=True) if one != other]
    assert differences == []
