"""The identity and the listeners of a node.

`node_of` combines keys that depend on each other into a `Node`, and validates them. A `ConfigError` is a sentence that
names the key, its value and the expected value.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from . import log_keys as log
from . import node_keys as node
from . import trioka_keys as own
from .addresses import Endpoint, SecurityProtocol, Server, Voter, parse_listener, parse_server, parse_voter
from .layers import Config, ConfigError
from .sasl import sasl_of

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
ANY_ADDRESS: Final = "0.0.0.0"
MAX_LOG_DIRS: Final = 1000  # each keeps a lock file and three checkpoint files open


class Node(NamedTuple):
    """Identity and addresses of a node. (A named tuple: importing it takes a tenth of the time of a data class.)"""

    id: int
    roles: frozenset[str]  # BROKER, CONTROLLER, or both
    rack: str | None
    listeners: tuple[Endpoint, ...]  # all of them, in the order of `listeners`
    advertised: tuple[Endpoint, ...]  # an empty host means this machine's host name
    inter_broker: str  # name of the listener between brokers; empty without the broker role
    inter_broker_protocol: SecurityProtocol
    controller_protocol: SecurityProtocol  # of the first of `controller_names`
    controller_names: tuple[str, ...]  # names of the listeners of controllers; a broker connects to the first
    voters: tuple[Voter, ...]
    bootstrap_servers: tuple[Server, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    memory_log_dirs: tuple[str, ...] = ()  # those of log_dirs that a restart of the machine empties

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles

    @property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(endpoint for endpoint in self.listeners if endpoint.name not in self.controller_names)

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(endpoint for endpoint in self.listeners if endpoint.name in self.controller_names)


def node_of(config: Config) -> Node:
    """The node that a configuration describes; raises ConfigError."""
    for key in (node.PROCESS_ROLES, node.NODE_ID, node.CONTROLLER_LISTENER_NAMES):
        if not config.is_set(key):
            raise ConfigError(f"{key.name} is not set and has no default. {key.doc}")
    if config[node.BROKER_ID] not in (-1, config[node.NODE_ID]):
        raise ConfigError(
            f"broker.id is {config[node.BROKER_ID]}, but must be equal to node.id ({config[node.NODE_ID]})."
        )
    controller_names = tuple(name.upper() for name in config[node.CONTROLLER_LISTENER_NAMES])
    protocols = _protocols(config, controller_names)
    listeners = _endpoints(config[node.LISTENERS], node.LISTENERS.name, protocols)
    _check_ports(listeners)
    described = Node(
        id=config[node.NODE_ID],
        roles=frozenset(config[node.PROCESS_ROLES]),
        rack=config[node.BROKER_RACK],
        listeners=listeners,
        advertised=_advertised(config, listeners, controller_names, protocols),
        inter_broker="",
        inter_broker_protocol=SecurityProtocol.PLAINTEXT,
        controller_protocol=protocols.get(controller_names[0], SecurityProtocol.PLAINTEXT),
        controller_names=controller_names,
        voters=tuple(map(parse_voter, config[node.CONTROLLER_QUORUM_VOTERS])),
        bootstrap_servers=tuple(map(parse_server, config[node.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS])),
        log_dirs=_log_dirs(config),
        metadata_log_dir=config[node.METADATA_LOG_DIR] or _log_dirs(config)[0],
        memory_log_dirs=_memory_log_dirs(config),
    )
    _check_quorum(described)
    _check_controller_listeners(described, protocols)
    _check_protocols(described, config)
    return _with_inter_broker(described, config, protocols)


def _protocols(config: Config, controller_names: tuple[str, ...]) -> dict[str, SecurityProtocol]:
    """Parse listener.security.protocol.map. Controller listeners default to PLAINTEXT if no listener is secured."""
    text = config[node.LISTENER_SECURITY_PROTOCOL_MAP]
    protocols: dict[str, SecurityProtocol] = {}
    for pair in text.split(",") if text else ():
        name, colon, protocol = (part.strip() for part in pair.partition(":"))
        if not name or not colon or protocol.upper() not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(
                f"listener.security.protocol.map has '{pair.strip()}', which must be NAME:PROTOCOL with one of {known}."
            )
        if protocols.setdefault(name.upper(), SecurityProtocol[protocol.upper()]) != SecurityProtocol[protocol.upper()]:
            raise ConfigError(f"listener.security.protocol.map names {name.upper()} twice.")
    if not config.is_set(node.LISTENER_SECURITY_PROTOCOL_MAP):
        named = {*controller_names, *(text.partition("://")[0].upper() for text in config[node.LISTENERS])}
        if not named & {"SSL", "SASL_SSL", "SASL_PLAINTEXT"}:
            for name in controller_names:
                protocols.setdefault(name, SecurityProtocol.PLAINTEXT)
    return protocols


def _endpoints(texts: Iterable[str], key: str, protocols: dict[str, SecurityProtocol]) -> tuple[Endpoint, ...]:
    endpoints: list[Endpoint] = []
    for text in texts:
        try:
            name, server = parse_listener(text)
        except ValueError as error:
            raise ConfigError(f"{key} has '{text}', which {error}.") from None
        if name not in protocols:
            known = ", ".join(sorted(protocols))
            raise ConfigError(
                f"{key} has '{text}', but {name} is not in listener.security.protocol.map, which has {known}."
            )
        if any(name == other.name for other in endpoints):
            raise ConfigError(f"{key} has the name {name} twice; names of listeners must be unique.")
        endpoints.append(Endpoint(name, protocols[name], *server))
    return tuple(endpoints)


def _check_ports(listeners: tuple[Endpoint, ...]) -> None:
    """Two listeners may share a port only if one has an IPv4 and the other an IPv6 address. Port 0 is any free port."""
    for index, listener in enumerate(listeners):
        for other in listeners[:index]:
            if (
                listener.port
                and listener.port == other.port
                and {_family(listener.host), _family(other.host)} != {4, 6}
            ):
                raise ConfigError(f"listeners has {other} and {listener} on the same port; ports must be unique.")


def _family(host: str) -> int:
    """4 or 6 for an IP address, 0 for a host name or an empty host."""
    if ":" in host:
        return 6
    parts = host.split(".")
    return 4 if len(parts) == 4 and all(part.isdigit() and int(part) < 256 for part in parts) else 0


def _advertised(
    config: Config,
    listeners: tuple[Endpoint, ...],
    controller_names: tuple[str, ...],
    protocols: dict[str, SecurityProtocol],
) -> tuple[Endpoint, ...]:
    if BROKER not in config[node.PROCESS_ROLES]:
        return ()
    texts = config[node.ADVERTISED_LISTENERS]
    endpoints = listeners if texts is None else _endpoints(texts, node.ADVERTISED_LISTENERS.name, protocols)
    advertised = tuple(endpoint for endpoint in endpoints if endpoint.name not in controller_names)
    key = "listeners" if texts is None else "advertised.listeners"
    if not advertised:
        raise ConfigError(
            f"{key} is '{','.join(map(str, endpoints))}', which has no listener for clients of the broker."
        )
    names = [endpoint.name for endpoint in listeners]
    for endpoint in advertised:
        if endpoint.name not in names:
            raise ConfigError(
                f"advertised.listeners has {endpoint}, but its name is not in listeners: {', '.join(names)}."
            )
        if endpoint.host == ANY_ADDRESS:
            raise ConfigError(
                f"{key} has {endpoint}, but clients cannot connect to 0.0.0.0: advertise a reachable address."
            )
    return advertised


def _log_dirs(config: Config) -> tuple[str, ...]:
    directories = config[log.LOG_DIRS] or config[log.LOG_DIR]
    if len(directories) > MAX_LOG_DIRS:
        raise ConfigError(f"log.dirs has {len(directories)} directories; the maximum is {MAX_LOG_DIRS}.")
    return directories


def _memory_log_dirs(config: Config) -> tuple[str, ...]:
    """Reject directories that are not in log.dirs, and a node that would have nothing but memory: the metadata log, the
    votes of a controller and all other topics need a disk."""
    in_memory = [path.rstrip("/") for path in config[own.MEMORY_LOG_DIRS]]
    if not in_memory:
        return ()
    log_dirs = [path.rstrip("/") for path in _log_dirs(config)]
    for path in in_memory:
        if path not in log_dirs:
            raise ConfigError(f"{own.MEMORY_LOG_DIRS.name} has {path}, which must also be in log.dirs.")
    if set(log_dirs) <= set(in_memory):
        raise ConfigError(f"{own.MEMORY_LOG_DIRS.name} has all of log.dirs; at least one must be on a disk.")
    of_metadata = (config[node.METADATA_LOG_DIR] or log_dirs[0]).rstrip("/")
    if of_metadata in in_memory:
        raise ConfigError(
            f"{own.MEMORY_LOG_DIRS.name} has {of_metadata}, the directory of the metadata log, which must be on a "
            "disk: put a directory on a disk first in log.dirs, or set metadata.log.dir."
        )
    return tuple(dict.fromkeys(in_memory))


def _check_quorum(described: Node) -> None:
    if not described.voters and not described.bootstrap_servers:
        raise ConfigError(
            "Neither controller.quorum.bootstrap.servers nor controller.quorum.voters is set, "
            "so this node cannot find its quorum."
        )
    ids = [voter.id for voter in described.voters]
    if described.is_controller and ids and described.id not in ids:
        raise ConfigError(f"node.id is {described.id}, but controller.quorum.voters does not contain it: it has {ids}.")
    if not described.is_controller and described.id in ids:
        raise ConfigError(
            f"controller.quorum.voters contains this node ({described.id}), but process.roles has no controller."
        )
    for voter in described.voters:
        if voter.server.host == ANY_ADDRESS:
            raise ConfigError(
                f"controller.quorum.voters has {voter.id}@{voter.server}, which is not a reachable address."
            )


def _check_controller_listeners(described: Node, protocols: dict[str, SecurityProtocol]) -> None:
    controller_names = ", ".join(described.controller_names)
    names = {endpoint.name for endpoint in described.listeners}
    if not described.is_controller:
        if described.controller_listeners:
            raise ConfigError(
                f"listeners has the controller listener {controller_names}, but process.roles is only broker."
            )
        if missing := [name for name in described.controller_names if name not in protocols]:
            raise ConfigError(
                f"controller.listener.names has {missing[0]}, which is not in listener.security.protocol.map."
            )
        return
    if missing := [name for name in described.controller_names if name not in names]:
        raise ConfigError(f"controller.listener.names has {missing[0]}, which is not in listeners.")
    if not described.is_broker and described.broker_listeners:
        raise ConfigError(
            f"listeners has {described.broker_listeners[0]}, but process.roles is only controller, "
            f"which has no listeners other than {controller_names}."
        )


def _check_protocols(described: Node, config: Config) -> None:
    """Refuses a SASL listener that cannot serve logins. TLS listeners are checked when their key stores are read
    (broker/security/tls/listener_check.py)."""
    for endpoint in described.listeners:
        if endpoint.protocol.sasl:
            sasl_of(config, endpoint.name)


def _with_inter_broker(described: Node, config: Config, protocols: dict[str, SecurityProtocol]) -> Node:
    if not described.is_broker:
        return described
    name = config[node.INTER_BROKER_LISTENER_NAME]
    if name is not None and config.is_set(node.SECURITY_INTER_BROKER_PROTOCOL):
        raise ConfigError(
            "Both inter.broker.listener.name and security.inter.broker.protocol are set; set only one of them."
        )
    key = node.SECURITY_INTER_BROKER_PROTOCOL if name is None else node.INTER_BROKER_LISTENER_NAME
    chosen = (config[node.SECURITY_INTER_BROKER_PROTOCOL] if name is None else name).upper()
    if chosen not in protocols:
        raise ConfigError(f"{key.name} is {chosen}, which is not in listener.security.protocol.map.")
    names = [endpoint.name for endpoint in described.advertised]
    if chosen not in names:
        raise ConfigError(f"{key.name} is {chosen}, but must be one of the advertised listeners: {', '.join(names)}.")
    return described._replace(inter_broker=chosen, inter_broker_protocol=protocols[chosen])
