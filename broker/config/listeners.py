"""Who a node is and where it listens: the keys that only make sense together, as one value.

`Node` is made once, from a configuration that is about to be started with. Everything that could be wrong with these
keys is a `ConfigError` here, one sentence with the key, its value, and what it should be.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from . import log_keys as log
from . import node_keys as node
from .addresses import Endpoint, SecurityProtocol, Server, Voter, parse_listener, parse_server, parse_voter
from .layers import Config, ConfigError

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
EVERYWHERE: Final = "0.0.0.0"
MAX_LOG_DIRS: Final = 1000  # each holds a lock and three checkpoints open


class Node(NamedTuple):
    """A node's place in the world. (A named tuple, for it is made in a tenth of a data class's time at import.)"""

    id: int
    roles: frozenset[str]  # BROKER, CONTROLLER, or both
    rack: str | None
    listeners: tuple[Endpoint, ...]  # all of them, in the order of the key
    advertised: tuple[Endpoint, ...]  # what clients are told; without a host, the machine's own name is meant
    inter_broker: str  # the name of the listener between brokers; empty if this is no broker
    controller_names: tuple[str, ...]  # of the listeners of controllers; a broker uses the first
    voters: tuple[Voter, ...]
    bootstrap_servers: tuple[Server, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str

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
    """The node that a configuration describes, or a ConfigError."""
    for key in (node.PROCESS_ROLES, node.NODE_ID, node.CONTROLLER_LISTENER_NAMES):
        if not config.is_set(key):
            raise ConfigError(f"{key.name} is not set, and has no default. {key.doc}")
    if config[node.BROKER_ID] not in (-1, config[node.NODE_ID]):
        raise ConfigError(f"broker.id is {config[node.BROKER_ID]}, and must be as node.id, {config[node.NODE_ID]}.")
    controller_names = tuple(name.upper() for name in config[node.CONTROLLER_LISTENER_NAMES])
    protocols = _protocols(config, controller_names)
    listeners = _endpoints(config[node.LISTENERS], node.LISTENERS.name, protocols)
    _one_port_each(listeners)
    described = Node(
        id=config[node.NODE_ID],
        roles=frozenset(config[node.PROCESS_ROLES]),
        rack=config[node.BROKER_RACK],
        listeners=listeners,
        advertised=_advertised(config, listeners, controller_names, protocols),
        inter_broker="",
        controller_names=controller_names,
        voters=tuple(map(parse_voter, config[node.CONTROLLER_QUORUM_VOTERS])),
        bootstrap_servers=tuple(map(parse_server, config[node.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS])),
        log_dirs=_log_dirs(config),
        metadata_log_dir=config[node.METADATA_LOG_DIR] or _log_dirs(config)[0],
    )
    _check_quorum(described)
    _check_controller_listeners(described, protocols)
    _check_protocols(described, protocols)
    return _with_inter_broker(described, config, protocols)


def _protocols(config: Config, controller_names: tuple[str, ...]) -> dict[str, SecurityProtocol]:
    """listener.security.protocol.map. Controllers need not stand in it where nothing is secured anyway."""
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
                f"{key} has '{text}', and listener.security.protocol.map does not know {name}; it knows {known}."
            )
        if any(name == other.name for other in endpoints):
            raise ConfigError(f"{key} names {name} twice; each listener needs a name of its own.")
        endpoints.append(Endpoint(name, protocols[name], *server))
    return tuple(endpoints)


def _one_port_each(listeners: tuple[Endpoint, ...]) -> None:
    """Two listeners share a port only if one has an IPv4 and the other an IPv6 address. Port 0 is any free one."""
    for index, one in enumerate(listeners):
        for other in listeners[:index]:
            if one.port and one.port == other.port and {_family(one.host), _family(other.host)} != {4, 6}:
                raise ConfigError(f"listeners has {other} and {one} on the same port; each needs one of its own.")


def _family(host: str) -> int:
    """4 or 6 for an address, 0 for a name or for every address."""
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
    told = tuple(endpoint for endpoint in endpoints if endpoint.name not in controller_names)
    key = "listeners" if texts is None else "advertised.listeners"
    if not told:
        raise ConfigError(f"{key} is '{','.join(map(str, endpoints))}', and leaves a broker's clients without one.")
    names = [endpoint.name for endpoint in listeners]
    for endpoint in told:
        if endpoint.name not in names:
            raise ConfigError(
                f"advertised.listeners has {endpoint}, and no such name is among listeners: {', '.join(names)}."
            )
        if endpoint.host == EVERYWHERE:
            raise ConfigError(f"{key} has {endpoint}, and no client can connect to 0.0.0.0: advertise a real address.")
    return told


def _log_dirs(config: Config) -> tuple[str, ...]:
    directories = config[log.LOG_DIRS] or config[log.LOG_DIR]
    if len(directories) > MAX_LOG_DIRS:
        raise ConfigError(f"log.dirs names {len(directories)} directories, and {MAX_LOG_DIRS} is the most.")
    return directories


def _check_quorum(described: Node) -> None:
    if not described.voters and not described.bootstrap_servers:
        raise ConfigError(
            "Neither controller.quorum.bootstrap.servers nor controller.quorum.voters is set, "
            "so this node would not find its quorum."
        )
    ids = [voter.id for voter in described.voters]
    if described.is_controller and ids and described.id not in ids:
        raise ConfigError(f"node.id is {described.id}, and controller.quorum.voters must name it too: it has {ids}.")
    if not described.is_controller and described.id in ids:
        raise ConfigError(
            f"controller.quorum.voters names {described.id}, which is this node, and that is no controller."
        )
    for voter in described.voters:
        if voter.server.host == EVERYWHERE:
            raise ConfigError(f"controller.quorum.voters has {voter.id}@{voter.server}, which nobody can connect to.")


def _check_controller_listeners(described: Node, protocols: dict[str, SecurityProtocol]) -> None:
    wanted = ", ".join(described.controller_names)
    names = {endpoint.name for endpoint in described.listeners}
    if not described.is_controller:
        if described.controller_listeners:
            raise ConfigError(f"listeners names {wanted}, which is for controllers, and process.roles is only broker.")
        if missing := [name for name in described.controller_names if name not in protocols]:
            raise ConfigError(
                f"controller.listener.names has {missing[0]}, "
                "and listener.security.protocol.map does not say what it speaks."
            )
        return
    if missing := [name for name in described.controller_names if name not in names]:
        raise ConfigError(f"controller.listener.names has {missing[0]}, and listeners has none of that name.")
    if not described.is_broker and described.broker_listeners:
        raise ConfigError(
            f"listeners has {described.broker_listeners[0]}, and a mere controller only has the listeners {wanted}."
        )


def _check_protocols(described: Node, protocols: dict[str, SecurityProtocol]) -> None:
    """What a configuration says is encrypted or asks for a login must not be served, nor asked for, without it."""
    used = [(f"listeners has {endpoint}", endpoint.name) for endpoint in described.listeners]
    used += [(f"controller.listener.names has {name}", name) for name in described.controller_names]
    for where, name in used:
        if protocols[name] is not SecurityProtocol.PLAINTEXT:
            raise ConfigError(
                f"{where}, whose protocol is {protocols[name].name}, and TLS and SASL are not there yet: "
                "what would be served in plaintext and to anybody is not served."
            )


def _with_inter_broker(described: Node, config: Config, protocols: dict[str, SecurityProtocol]) -> Node:
    if not described.is_broker:
        return described
    name = config[node.INTER_BROKER_LISTENER_NAME]
    if name is not None and config.is_set(node.SECURITY_INTER_BROKER_PROTOCOL):
        raise ConfigError("Both inter.broker.listener.name and security.inter.broker.protocol are set; one is enough.")
    key = node.SECURITY_INTER_BROKER_PROTOCOL if name is None else node.INTER_BROKER_LISTENER_NAME
    chosen = (config[node.SECURITY_INTER_BROKER_PROTOCOL] if name is None else name).upper()
    if chosen not in protocols:
        raise ConfigError(f"{key.name} is {chosen}, and listener.security.protocol.map does not say what it speaks.")
    names = [endpoint.name for endpoint in described.advertised]
    if chosen not in names:
        raise ConfigError(f"{key.name} is {chosen}, and must be one of the advertised listeners: {', '.join(names)}.")
    return described._replace(inter_broker=chosen)
