"""Who may use the registry, where the cluster has users.

The registry reads and writes its topic with the gateway's own login, so a caller proves two things first: the login of
the `authorization` header, by a connection to the cluster with it; and that this user may READ the topic to read
schemas, or WRITE it to change them. The cluster's answer counts for `CACHE_S`.
"""

import time
from collections import OrderedDict
from typing import Final

from trioka.protocol import errors
from trioka.protocol.errors import NONE, KafkaError
from trioka.protocol.messages.metadata import MetadataRequest

from ..clients import Clients
from ..cluster_access import ClusterAccess, Login
from ..credentials import login_of
from ..failures import Refused
from .errors import RegistryError

CACHE_S: Final = 10.0
MAX_CALLERS: Final = 1000
READ, WRITE = 3, 4  # bits of the operations that a user may do with a topic


class RegistryAccess:
    def __init__(self, access: ClusterAccess, clients: Clients, topic: str) -> None:
        self._access, self._clients, self._topic = access, clients, topic
        self._known: OrderedDict[Login, tuple[float, int]] = OrderedDict()

    async def check(self, authorization: str | None, *, is_write: bool) -> None:
        """Raises RegistryError with 401 or 403."""
        try:
            login = login_of(authorization, self._access)
        except Refused as error:
            raise RegistryError(401, f"{str(error)[0].upper()}{str(error)[1:]}.") from None
        await self.check_login(login, is_write=is_write)

    async def check_login(self, login: Login | None, *, is_write: bool) -> None:
        """The same for a login; None is that of a cluster without users."""
        if login is None:
            return
        known = self._known.get(login)
        if known is None or known[0] < time.monotonic():
            known = time.monotonic() + CACHE_S, await self._operations(login)
            self._known[login] = known
            if len(self._known) > MAX_CALLERS:
                self._known.popitem(last=False)
        wanted = WRITE if is_write else READ
        if not known[1] >> wanted & 1:
            verb = "WRITE" if is_write else "READ"
            raise RegistryError(403, f"User '{login.username}' may not {verb} the topic {self._topic}.")

    async def _operations(self, login: Login) -> int:
        """What the user may do with the topic, as bits."""
        request = MetadataRequest(
            topics=[MetadataRequest.Topic(name=self._topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        clients = None
        try:
            clients = self._clients.acquire(login)
            response = await clients.cluster.ask(request)
        except Refused as error:
            raise RegistryError(503, f"{error}.") from None
        except errors.SaslAuthenticationFailed:
            if clients is not None:
                self._clients.forget(clients)
            raise RegistryError(401, "The cluster does not know this user, or has another password.") from None
        except (KafkaError, OSError) as error:
            raise RegistryError(50002, f"The cluster could not be asked about this user: {error}.") from None
        finally:
            if clients is not None:
                self._clients.release(clients)
        (topic,) = response.topics
        if topic.error_code == errors.UnknownTopicOrPartition.code:
            raise RegistryError(50002, f"The topic {self._topic} does not exist yet.")
        return 0 if topic.error_code != NONE else max(0, int(topic.topic_authorized_operations))
