"""Usage of client quotas, under the names that Strimzi's rules give to Kafka's metrics.

`resource` is Kafka's type of quota: Produce, Fetch, Request, ControllerMutation. A client that is counted by its user
alone has an empty clientId, and the other way round.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ..config.trioka_keys import METRICS_MAX_PARTITIONS
from ..security.client_quotas import FETCH, MUTATION, PRODUCE, REQUEST, Counter, QuotaTable
from . import series as s
from .samples import Sample, Steps

if TYPE_CHECKING:
    from ..broker import Broker

RESOURCES: Final = {PRODUCE: "Produce", FETCH: "Fetch", REQUEST: "Request", MUTATION: "ControllerMutation"}
RATES: Final = {
    s.QUOTA_BYTE_RATE: (PRODUCE, FETCH),
    s.QUOTA_REQUEST_TIME: (REQUEST,),
    s.QUOTA_MUTATION_RATE: (MUTATION,),
}


def quota_readings(broker: "Broker") -> Steps[dict[str, int]]:
    """Also returns how many clients were omitted."""
    quotas, most = broker.client_quotas, broker.config[METRICS_MAX_PARTITIONS]
    now_ms = quotas.now_ms()
    tables = {table.key: table for table in quotas.tables if table.levels}
    for series, keys in RATES.items():
        yield (
            series,
            [
                sample
                for key in keys
                if key in tables
                for sample in _samples(tables[key], most, lambda counter: counter.rate.per_second(now_ms))
            ],
        )
    if REQUEST in tables:
        yield s.EXEMPT_REQUEST_TIME, [Sample({}, quotas.exempt.per_second(now_ms))]
    if MUTATION in tables:
        yield s.QUOTA_TOKENS, list(_samples(tables[MUTATION], most, lambda counter: counter.tokens(now_ms)))
    yield (
        s.QUOTA_THROTTLE_TIME,
        [
            sample
            for table in tables.values()
            for sample in _samples(table, most, lambda counter: counter.average_throttle_ms(now_ms))
        ],
    )
    return {"clients": sum(max(0, len(table.counters) - most) for table in tables.values())}


def _samples(table: QuotaTable, most: int, value: Callable[[Counter], float | None]) -> Iterator[Sample]:
    for (user, client_id), counter in islice(table.counters.items(), most):
        number = value(counter)
        if number is not None:
            labels = {"resource": RESOURCES[table.key], "user": quote(user, safe=""), "clientId": client_id}
            yield Sample(labels, number)
