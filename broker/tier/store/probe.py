"""Refuses a store that does not honour conditional creation, by racing creates against each other.

A store that ignores `If-None-Match: *` accepts every create. Two leaders could then both complete a segment, and the
tombstone of a cancelled upload would replace its manifest. So a broker does not use such a store.
"""

from typing import Final

import trio

from .object_store import ObjectStore, ObjectStoreError, ObjectStoreRefused

PROBE_PREFIX: Final = "_trioka/probe/"
RACERS: Final = 8


async def check_conditional_create(store: ObjectStore, name: str) -> None:
    """Race creates of one object; `name` must be unused. Raises ObjectStoreRefused, in a sentence; ObjectStoreError if
    the store does not answer, so that it is not known."""
    key = PROBE_PREFIX + name
    created: list[bytes] = []
    failures: list[ObjectStoreError] = []

    async def race(data: bytes) -> None:
        try:
            if await store.create(key, data):
                created.append(data)
        except ObjectStoreError as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for racer in range(RACERS):
            nursery.start_soon(race, b"%s %d" % (name.encode(), racer))
    if failures and len(created) <= 1:  # two that succeed prove enough, whatever became of the others
        raise failures[0]
    late = await store.create(key, b"late")
    content = bytes(await store.get(key))
    if late or created != [content]:
        raise ObjectStoreRefused(
            f"trioka.tier.url {store.url} cannot be used: it does not honour conditional writes "
            f"(If-None-Match: *). {len(created) + late} of {RACERS + 1} attempts to create the same object "
            "succeeded; exactly one must."
        )
    await store.delete([key])
