"""The introductory example: `trioka pipeline example`.

The records are the JSON orders of a shop in three currencies during an hour; a few of them are invalid on purpose. The
pipeline's file stays in the example's folder, to be read and changed: it validates the orders, adds up the revenue of
each minute, and writes it to an Iceberg table. Then the example queries the table and draws a picture.

The command runs a temporary broker if none is given. The orders are the same in every run.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError, TopicAlreadyExistsError

from .cases import temporary_broker
from .errors import InvalidPipeline
from .installation.cache import Unreachable
from .pipeline import Pipeline
from .runner.run import spark_for
from .sources.bootstrap import reach

TOPIC = "example-orders"
DEAD_LETTERS = "example-dead-letters"
PARTITIONS = 3
MINUTES = 60
SEED = 2026
OPENING = datetime(2026, 11, 16, 8, tzinfo=UTC)
SENT_WITHIN_S = 120

DECLARATION = f"""\
# Revenue per minute. Try: trioka pipeline check orders.toml
name = "example-revenue"

[source]
topics = ["{TOPIC}"]

[decode]
format = "json"
schema = "order_id BIGINT NOT NULL, at TIMESTAMP NOT NULL, currency STRING NOT NULL, amount DECIMAL(10,2) NOT NULL"

[validate]
"an amount is above zero" = "amount > 0"
"a currency is known" = "currency IN ('EUR', 'USD', 'GBP')"

[watermark]
column = "at"
delay = "10 minutes"

[aggregate]
window = "1 minute"
by = ["currency"]
columns = {{ revenue = "sum(amount)", orders = "count(*)" }}
emit = "updates"

[sink]
kind = "iceberg"
warehouse = "warehouse"
table = "shop.revenue"

[dead_letters]
kind = "topic"
topic = "{DEAD_LETTERS}"
"""

QUERY = """
SELECT currency, sum(orders) AS orders, sum(revenue) AS revenue, max(revenue) AS best_minute
FROM {table} GROUP BY currency ORDER BY currency
"""

Say = Callable[[str], None]


def orders(count: int) -> Iterator[bytes]:
    """The orders of an hour, in order of time, one in two hundred of them invalid."""
    random = Random(SEED)
    for number in range(count):
        at = OPENING + timedelta(minutes=MINUTES) * (number / count)
        busy = 1 + abs((number / count) - 0.5)
        order: dict[str, Any] = {
            "order_id": number,
            "at": at.isoformat(timespec="milliseconds"),
            "currency": random.choices(("EUR", "USD", "GBP"), (5, 3, 2))[0],
            "amount": round(random.lognormvariate(3, 0.6) * busy, 2),
        }
        if number % 200 == 100:
            order |= random.choice(({"amount": -1}, {"amount": "much"}, {"currency": "XYZ"}, {"order_id": None}))
        yield json.dumps(order).encode()


def run_example(folder: Path, *, bootstrap: str, count: int, master: str, say: Say) -> str:
    """Run the whole example; the result is a table to print."""
    file = folder / "orders.toml"
    if (file.exists() and file.read_text() != DECLARATION) or (folder / "checkpoints").exists():
        raise InvalidPipeline(f"{folder} holds an example already; name another folder by --folder, or delete it.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(DECLARATION)
    except OSError as error:
        raise InvalidPipeline(f"{folder} cannot be written: {error.strerror}.") from None
    say(f"writing {count} orders to the topic {TOPIC} on {bootstrap}")
    _produce(bootstrap, count)
    pipeline = Pipeline.read(file, bootstrap=bootstrap)
    say(f"running {file}: {pipeline.declared.sink.target}")
    with spark_for(pipeline.declared, master, None) as spark:
        pipeline.run(once=True, say=say)
        found: Any = spark.sql(QUERY.format(table="trioka.shop.revenue")).toPandas()
        minutes = pipeline.frame(spark).orderBy("window_start").toPandas()
    picture = folder / "revenue.png"
    _draw(minutes, picture)
    say(f"the picture is {picture}, the pipeline {file}")
    return str(found.to_string(index=False))


def _produce(address: str, count: int) -> None:
    try:
        admin = KafkaAdminClient(bootstrap_servers=address)
        for topic in (TOPIC, DEAD_LETTERS):
            try:
                admin.create_topics({topic: {"num_partitions": PARTITIONS, "replication_factor": 1}})
            except TopicAlreadyExistsError:
                raise InvalidPipeline(f"The topic {topic} is on {address} already; the example wants none.") from None
        admin.close()
        producer = KafkaProducer(bootstrap_servers=address, linger_ms=50)
        for order in orders(count):
            producer.send(TOPIC, order)
        producer.flush(timeout=SENT_WITHIN_S)
        producer.close()
    except KafkaError as error:
        raise Unreachable(f"{address} did not take the orders: {error}.") from None


@contextmanager
def example_broker(bootstrap: str | None, say: Say) -> Iterator[str]:
    """The broker that was given, or a temporary one in memory."""
    if bootstrap is not None:
        reach(bootstrap)
        yield bootstrap
        return
    say("starting a broker: trioka dev")
    with temporary_broker() as address:
        yield address


def next_steps(folder: Path, address: str) -> str:
    """What can be done in a second terminal while the broker is kept."""
    return (
        f"the broker on {address} runs until Ctrl-C; change {folder}/orders.toml, then, in a second terminal:\n"
        f"  trioka pipeline check {folder}/orders.toml --bootstrap-server {address}\n"
        f"  trioka pipeline run {folder}/orders.toml --bootstrap-server {address}\n"
        f"  trioka consume {DEAD_LETTERS} -b {address} -e"
    )


def _draw(minutes: Any, picture: Path) -> None:
    """Draw one line for each currency. The library is imported here, because nothing else draws."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for currency, rows in minutes.groupby("currency"):
        axes.plot(rows["window_start"], rows["revenue"].astype(float), label=currency)
    axes.set(title="Revenue per minute", xlabel="minute (UTC)", ylabel="revenue")
    axes.legend()
    figure.autofmt_xdate()
    figure.savefig(picture, dpi=120)
