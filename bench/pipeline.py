"""The CPU of a pipeline beside the same job by hand: JSON records of a topic into an Iceberg table.

    python bench/pipeline.py --records 5000000 --rounds 3

Each round runs both in processes of their own, one after the other, over a topic that was filled before: the short form
with a rule and dead letters, and a program of Spark that parses, filters and appends the same columns. With
`--refuse-every 1000`, each thousandth record breaks the rule: the pipeline writes it to the table of dead letters, the
program drops it. The CPU is that of the process and of those that it starts. A median below 1.1 is the aim.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
from kafka import KafkaProducer

from trioka.pipeline.cases import create_topics, temporary_broker

TOPIC = "bench"
PARTITIONS = 4
RECORD_BYTES = 200
SAMPLE_S = 0.1
SCHEMA = "id BIGINT NOT NULL, amount DOUBLE, text STRING"
PIPELINE = f"""
name = "bench"
[source]
topics = ["{TOPIC}"]
max_records_per_batch = {{batch}}
[decode]
format = "json"
schema = "{SCHEMA}"
[validate]
"an amount is there" = "amount IS NOT NULL"
[transform]
sql = "SELECT id, amount, text FROM records"
[sink]
kind = "iceberg"
warehouse = "warehouse"
table = "bench.rows"
[dead_letters]
kind = "iceberg"
warehouse = "warehouse"
table = "bench.refused"
"""
BY_HAND = f"""
import sys
from pyspark.sql import functions as F
from trioka.pipeline.runner.session import session, source_options

bootstrap, folder, batch = sys.argv[1:]
spark = session("by hand", master="local[2]", iceberg=True, warehouse=f"{{folder}}/warehouse",
                settings={{"spark.sql.shuffle.partitions": "4"}})
spark.sql("CREATE NAMESPACE trioka.bench")
spark.sql("CREATE TABLE trioka.bench.rows (id BIGINT, amount DOUBLE, text STRING) USING iceberg")
options = source_options(bootstrap, subscribe="{TOPIC}", startingOffsets="earliest", maxOffsetsPerTrigger=batch)
rows = spark.readStream.format("kafka").options(**options).load()
rows = rows.select(F.from_json(F.col("value").cast("string"), "{SCHEMA}").alias("r")).select("r.*")
rows = rows.where("id IS NOT NULL AND amount IS NOT NULL")
writer = rows.writeStream.format("iceberg").option("checkpointLocation", f"{{folder}}/checkpoint")
writer.trigger(availableNow=True).toTable("trioka.bench.rows").awaitTermination()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--batch", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--refuse-every", type=int, default=0)
    given = parser.parse_args()
    with temporary_broker() as bootstrap:
        fill(bootstrap, given.records, given.refuse_every)
        ratios = []
        for number in range(given.rounds):
            runs = [("pipeline", run_pipeline), ("by hand", run_by_hand)]
            seconds = {name: cpu_of(run(bootstrap, given.batch)) for name, run in runs[:: 1 if number % 2 else -1]}
            ratios.append(seconds["pipeline"] / seconds["by hand"])
            print(
                f"round {number}: {seconds['pipeline']:.1f} s and by hand {seconds['by hand']:.1f} s of CPU", flush=True
            )
    print(f"median ratio {statistics.median(ratios):.2f} over {given.records} records")


def fill(bootstrap: str, count: int, refuse_every: int = 0) -> None:
    create_topics(bootstrap, [TOPIC], partitions=PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50, batch_size=256 << 10)
    for number in range(count):
        amount = None if refuse_every and number % refuse_every == 0 else number / 4
        record = json.dumps({"id": number, "amount": amount, "text": ""}).encode()
        padding = b"x" * max(0, RECORD_BYTES - len(record))
        producer.send(TOPIC, record.replace(b'""', b'"%s"' % padding), partition=number % PARTITIONS)
    producer.flush()
    producer.close()


def run_pipeline(bootstrap: str, batch: int) -> list[str | Path]:
    file = Path(tempfile.mkdtemp(prefix="trioka-bench-")) / "bench.toml"
    file.write_text(PIPELINE.format(batch=batch))
    command = [sys.executable, "-m", "trioka", "pipeline", "run", file, "--once", "--master", "local[2]"]
    return [*command, "--bootstrap-server", bootstrap]


def run_by_hand(bootstrap: str, batch: int) -> list[str | Path]:
    folder = Path(tempfile.mkdtemp(prefix="trioka-bench-"))
    return [sys.executable, "-c", BY_HAND, bootstrap, folder, str(batch)]


def cpu_of(command: list[str | Path]) -> float:
    """The CPU of a command and of all processes that it starts, sampled: Python does not wait for its JVM."""
    seconds: dict[int, float] = {}
    process = psutil.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        with suppress(psutil.Error):
            for one in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    used = one.cpu_times()
                    seconds[one.pid] = used.user + used.system
        time.sleep(SAMPLE_S)
    if process.returncode:
        raise SystemExit(f"{command[1:4]} ended with {process.returncode}")
    return sum(seconds.values())


if __name__ == "__main__":
    main()
