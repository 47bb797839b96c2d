"""Topics, partitions, offsets and brokers."""

from typing import Any

from trioka.protocol.errors import NONE, error_class

from ..clients import CallerClients
from ..kafka.cluster import EARLIEST, LATEST
from .errors import NO_PARTITION, RestError


async def topics(clients: CallerClients) -> list[str]:
    response = await clients.cluster.refresh(None)
    return sorted(each.name for each in response.topics if each.error_code == NONE and not each.is_internal)


async def topic(clients: CallerClients, name: str) -> dict[str, Any]:
    partitions = await topic_partitions(clients, name)
    configs = await clients.cluster.topic_configs(name, None)
    shown = {each.name: each.value for each in configs if not each.is_sensitive and each.value is not None}
    return {"name": name, "configs": shown, "partitions": partitions}


async def topic_partitions(clients: CallerClients, name: str) -> list[dict[str, Any]]:
    response = await clients.cluster.refresh([name])
    (found,) = response.topics
    if found.error_code != NONE:
        raise error_class(found.error_code)(f"topic '{name}': {error_class(found.error_code)()!s}")
    return [
        {
            "partition": each.partition_index,
            "leader": each.leader_id,
            "replicas": [
                {"broker": node, "leader": node == each.leader_id, "in_sync": node in each.isr_nodes}
                for node in each.replica_nodes
            ],
        }
        for each in sorted(found.partitions, key=lambda each: each.partition_index)
    ]


async def partition(clients: CallerClients, name: str, number: int) -> dict[str, Any]:
    for each in await topic_partitions(clients, name):
        if each["partition"] == number:
            return each
    raise RestError(NO_PARTITION, f"Topic '{name}' has no partition {number}.")


async def check_partition(clients: CallerClients, name: str, number: int) -> None:
    if number not in (await clients.cluster.topic(name)).leaders:
        await partition(clients, name, number)  # maybe it is new


async def offsets(clients: CallerClients, name: str, number: int) -> dict[str, int]:
    await check_partition(clients, name, number)
    first = await clients.cluster.list_offsets(name, [number], EARLIEST)
    end = await clients.cluster.list_offsets(name, [number], LATEST)
    return {"beginning_offset": first[number], "end_offset": end[number]}


async def brokers(clients: CallerClients) -> dict[str, list[int]]:
    return {"brokers": await clients.cluster.nodes()}
