"""The benchmarks, one after the other: `make bench` is the whole broker, `make bench ARGS="codec log"` some others.

Each is a separate program that describes its measures and prints ratios, because seconds on a shared machine are not
comparable.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BENCHMARKS = {
    "codec": "messages: decoding a Produce, encoding a Fetch, beside kafka-python and kio",
    "batches": "record batches and codecs, beside kafka-python",
    "disk": "files, beside the bare system calls",
    "producers": "producer state, for each idempotent batch",
    "request": "a Produce and a Fetch inside the broker, step by step",
    "group_requests": "heartbeats, commits and rebalances inside the broker",
    "fixtures": "how long a test waits for a broker: the first of a process, and the next",
    "log": "append, read planning, memory and opening, beside the bare system calls",
    "command_line": "trioka produce and consume, beside kcat (a minute; needs kcat)",
    "groups": "consumer groups at scale, beside Apache Kafka (minutes; needs Java)",
    "rebalances": "rebalances of real clients with default settings, beside Apache Kafka (minutes; needs Java)",
    "connector": "Spark through its Kafka connector, beside Apache Kafka (minutes; needs Java)",
    "transactions": "what exactly once costs: idempotent beside plain, transactions beside Apache Kafka (minutes)",
    "growth": "what a request costs as connections, partitions, logs and groups grow (minutes; needs Go and Java)",
    "fairness": "latency of a client under background load (minutes; needs Go and Java)",
    "syscall_baseline": "the raw limit of a machine: the system calls of a Produce and of a Fetch, and nothing else",
    "wakeup_latency": "a round trip on an idle machine, by the processor on which the server sleeps",
    "gil_switching": "what a client waits for while other threads of the broker compute (minutes; needs Go)",
    "replication": "a record that three brokers must have: CPU of all three, in one process",
    "authorizer": "what access control lists cost the fast paths (half a minute)",
    "linearizable_reads": "three nodes: a linearizable read, beside a Produce with acks=all (half a minute)",
    "failover": "three nodes: replicated writes, kills, stops, beside Apache Kafka (minutes; needs Go and Java)",
    "side_by_side": "the whole broker, beside Apache Kafka (minutes; needs Go and Java)",
}
DEFAULT = ["side_by_side"]
QUICK = ["codec", "batches", "disk", "producers", "request", "group_requests", "fixtures", "log"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs benchmarks; flags are passed on to each of them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*BENCHMARKS, "quick"]))
    options, flags = parser.parse_known_args()
    options.names = [each for name in options.names for each in (QUICK if name == "quick" else [name])]
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    failed = 0
    for name in options.names or DEFAULT:
        sys.stdout.write(f"\n== {name}: {BENCHMARKS[name]}\n\n")
        sys.stdout.flush()
        failed |= subprocess.run([sys.executable, HERE / f"{name}.py", *flags], check=False).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
