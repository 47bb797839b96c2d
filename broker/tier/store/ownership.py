"""Which cluster may write to the prefix of the object store: incarnations.

    _trioka/<cluster id>/incarnation-0000000001.json      created by the first broker of a cluster

A cluster that is restored from the bucket creates the next incarnation, and its brokers have that number in their
configuration (trioka.tier.incarnation). A broker that finds a higher incarnation than its own belongs to the cluster
that was replaced: it stops copying and deleting (TI11). It still reads.
"""

import json
import logging
import re
from typing import Final

import trio

from .object_store import ObjectStore, ObjectStoreError

log = logging.getLogger("trioka.tier")

CHECK_S: Final = 600.0  # between two looks at the bucket
RECENT_S: Final = 60.0  # a check that is older is repeated before a sweep or a deletion
_NAME: Final = re.compile(r"incarnation-([0-9]{10})\.json")


class Superseded(ObjectStoreError):
    """Another incarnation of the cluster owns the objects."""


def incarnation_prefix(cluster_id: str) -> str:
    return f"_trioka/{cluster_id}/"


def incarnation_key(cluster_id: str, incarnation: int) -> str:
    return f"{incarnation_prefix(cluster_id)}incarnation-{incarnation:010d}.json"


async def latest_incarnation(store: ObjectStore, cluster_id: str) -> int:
    """0 if there is none."""
    prefix = incarnation_prefix(cluster_id)
    found = [_NAME.fullmatch(info.key[len(prefix) :]) for info in await store.list(prefix)]
    return max((int(match[1]) for match in found if match), default=0)


class Ownership:
    def __init__(self, store: ObjectStore, cluster_id: str, incarnation: int) -> None:
        self.incarnation = incarnation
        self.superseded_by: int | None = None
        self._store = store
        self._cluster_id = cluster_id
        self._checked = -RECENT_S

    def require(self) -> None:
        """Raises Superseded."""
        if self.superseded_by is not None:
            raise Superseded(
                f"incarnation {self.superseded_by} of cluster {self._cluster_id} owns {self._store.url}, and this "
                f"broker belongs to incarnation {self.incarnation}: it does not write or delete objects any more"
            )

    async def check(self) -> None:
        """Looks at the bucket. Raises ObjectStoreError."""
        latest = await latest_incarnation(self._store, self._cluster_id)
        if latest < self.incarnation:
            content = json.dumps({"clusterId": self._cluster_id, "incarnation": self.incarnation}).encode()
            await self._store.create(incarnation_key(self._cluster_id, self.incarnation), content)
        elif latest > self.incarnation and self.superseded_by is None:
            self.superseded_by = latest
            log.error("tiered storage stops writing: %s", _reason(self))
        self._checked = trio.current_time()

    async def check_recently(self) -> None:
        """Before objects are deleted. Raises ObjectStoreError."""
        if trio.current_time() - self._checked > RECENT_S:
            await self.check()
        self.require()

    async def watch(self) -> None:
        while True:
            await trio.sleep(CHECK_S)
            try:
                await self.check()
            except ObjectStoreError as error:
                log.warning("the incarnation of the cluster could not be checked: %s", error)


def _reason(ownership: Ownership) -> str:
    try:
        ownership.require()
    except Superseded as error:
        return str(error)
    return "it does not"
