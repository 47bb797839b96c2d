"""Measures the cost of an authorizer: CPU per request of the fast paths, without one, and with StandardAuthorizer that
has no rules, or a thousand of which fifty are about the topic.

    python bench/authorizer.py [--rounds 15] [--directory DIR]

The brokers are in one process; their rounds are interleaved, and the medians are compared.
"""

import argparse
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import trio
from quotas import Rows, cpu_us, rows_of
from request import FAST_FOLDER, settings, started

from trioka.broker.broker import Broker
from trioka.cluster.image.acls import AclOperation, AclPermission, AclResourceType, PatternType
from trioka.protocol.messages.create_acls import CreateAclsRequest

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ON: Final = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "true"}
RULES: Final = 1000
ABOUT_THE_TOPIC: Final = 50
GOAL: Final = 1.15


def rule(number: int) -> CreateAclsRequest.Creation:
    """Of others, but for the last two: everybody may read from and write to the topic."""
    is_about_topic = number >= RULES - ABOUT_THE_TOPIC
    is_for_all = number >= RULES - 2
    return CreateAclsRequest.Creation(
        resource_type=AclResourceType.TOPIC,
        resource_name="bench" if is_about_topic else f"topic-{number}",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:*" if is_for_all else f"User:user-{number}",
        host="*",
        operation=AclOperation.READ if number % 2 else AclOperation.WRITE,
        permission_type=AclPermission.ALLOW,
    )


async def add_rules(broker: Broker) -> None:
    rules = [rule(number) for number in range(RULES)]
    await broker.quorum.change(lambda controller: controller.create_acls(rules))
    while len(broker.metadata.access.acls.rules) < RULES:  # noqa: ASYNC110 - soon
        await trio.sleep(0.001)


async def measure(folder: str, rounds: int) -> None:
    async with AsyncExitStack() as stack:
        rows: dict[str, Rows] = {}
        for name, configs in (("off", {}), ("no rules", ON), (f"{RULES} rules", ON)):
            config = settings(f"{folder}/{name.replace(' ', '-')}", configs)
            bench = await stack.enter_async_context(started(config, {"bench": 1}, rounds))
            if name == f"{RULES} rules":
                await add_rules(bench.broker)
            rows[name] = rows_of(bench)
        for row in rows["off"]:
            found: dict[str, list[float]] = {name: [] for name in rows}
            for number in range(rounds + 1):
                for name in rows:
                    microseconds = cpu_us(*rows[name][row])
                    if number:  # the first of each only warms up
                        found[name].append(microseconds)
            medians = {name: statistics.median(each) for name, each in found.items()}
            ratios = ", ".join(f"{name} {each:7.2f} µs {each / medians['off']:5.3f}x" for name, each in medians.items())
            print(f"{row:<34} {ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--directory", default=FAST_FOLDER if Path(FAST_FOLDER).is_dir() else None)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.directory) as folder:
        trio.run(measure, folder, chosen.rounds)


if __name__ == "__main__":
    main()
