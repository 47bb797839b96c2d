"""The SASL mechanisms of a listener, with their JAAS configuration.

    listener.name.<listener>.sasl.enabled.mechanisms            then sasl.enabled.mechanisms
    listener.name.<listener>.<mechanism>.sasl.jaas.config       then <mechanism>.sasl.jaas.config
                                                                then the JAAS file (trioka.jaas.file), with the
                                                                sections <listener>.KafkaServer and KafkaServer

A listener whose mechanisms cannot be served stops the start. A `sasl.jaas.config` without a mechanism is ignored by
Kafka's brokers, with a warning; here it is an error, since it most likely was meant to be used.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from trioka.protocol.sasl.client import CLIENT_MECHANISMS
from trioka.protocol.sasl.jaas import (
    MODULE_OF,
    OAUTHBEARER,
    JaasError,
    LoginModule,
    parse_jaas,
    parse_jaas_file,
)
from trioka.protocol.sasl.plain import PLAIN, PlainUsers
from trioka.protocol.sasl.scram import SCRAM_MECHANISMS
from trioka.storage.files.disk import read_settings_file

from .key import LISTENER_PREFIX, Key
from .layers import Config, ConfigError
from .oauth import OAuthSettings, oauth_settings
from .oauth_client import TokenSettings, token_settings
from .security_keys import SASL_ENABLED_MECHANISMS, SASL_JAAS_CONFIG
from .trioka_keys import JAAS_FILE
from .values import Secret

T = TypeVar("T")

SERVED: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
GSSAPI: Final = "GSSAPI"
SECTION: Final = "KafkaServer"
USER_PREFIX: Final = "user_"


class NodeLogin(NamedTuple):
    """The credentials with which this node logs in to other nodes."""

    mechanism: str
    username: str
    password: Secret
    token: TokenSettings | None = None  # for OAUTHBEARER, instead of name and password

    def __repr__(self) -> str:
        return f"NodeLogin({self.mechanism}, {self.username})"


class ListenerSasl(NamedTuple):
    """The SASL settings of a listener."""

    mechanisms: tuple[str, ...]  # in the order of the configuration
    modules: Mapping[str, LoginModule]  # by mechanism
    plain_users: PlainUsers | None  # if PLAIN is enabled
    oauth: OAuthSettings | None  # if OAUTHBEARER is enabled


def of_mechanism(config: Config, listener: str, mechanism: str, key: Key[T]) -> T:
    """The value for a mechanism of a listener, then for the listener, then of the key."""
    text = _first_text(config, _names(listener, mechanism, key.name)[:1])
    return config.of_listener(listener, key) if text is None else key.parse(text)


def sasl_of(config: Config, listener: str) -> ListenerSasl:
    """Raises ConfigError, with one sentence that names the key and no value."""
    enabled, key_name = _enabled_mechanisms(config, listener)
    sections = _jaas_file(config)
    modules = {mechanism: _module(config, listener, mechanism, key_name, sections) for mechanism in enabled}
    users = _plain_users(listener, modules[PLAIN]) if PLAIN in modules else None
    oauth = None
    if OAUTHBEARER in modules:
        oauth = oauth_settings(lambda key: of_mechanism(config, listener, OAUTHBEARER, key))
    return ListenerSasl(enabled, modules, users, oauth)


def login_of(config: Config, listener: str, mechanism: str) -> NodeLogin:
    """The credentials with which this node logs in to other nodes at a listener: `username` and `password` of its JAAS
    configuration, or where its bearer tokens come from. Raises ConfigError."""
    served = ", ".join(CLIENT_MECHANISMS)
    if mechanism not in CLIENT_MECHANISMS:
        reason = " (Kerberos)" if mechanism == GSSAPI else ""
        raise ConfigError(
            f"The nodes log in to each other at the listener {listener} by {mechanism[:80]}{reason}, which is not "
            "supported: set sasl.mechanism.inter.broker.protocol and sasl.mechanism.controller.protocol, where these "
            f"listeners use SASL, to one of {served}."
        )
    module = _module(config, listener, mechanism, "The login to other nodes", _jaas_file(config))
    if mechanism == OAUTHBEARER:
        tokens = token_settings(lambda key: of_mechanism(config, listener, OAUTHBEARER, key), module.options)
        return NodeLogin(mechanism, "", Secret(""), tokens)
    username, password = module.options.get("username"), module.options.get("password")
    if not username or not password:
        raise ConfigError(
            f"{_names(listener, mechanism, SASL_JAAS_CONFIG.name)[0]} has no username and password, with which this "
            "node logs in to other nodes."
        )
    return NodeLogin(mechanism, username, Secret(password))


def _enabled_mechanisms(config: Config, listener: str) -> tuple[tuple[str, ...], str]:
    """The mechanisms, and the name of the key that lists them."""
    prefixed = f"{LISTENER_PREFIX}{listener.lower()}.{SASL_ENABLED_MECHANISMS.name}"
    name = SASL_ENABLED_MECHANISMS.name if _first_text(config, (prefixed,)) is None else prefixed
    served = ", ".join(SERVED)
    if name is not prefixed and not config.is_set(SASL_ENABLED_MECHANISMS):
        raise ConfigError(
            f"{name} is not set, and its default for the listener {listener} is GSSAPI (Kerberos), which is not "
            f"supported: set it to some of {served}."
        )
    enabled = tuple(dict.fromkeys(each.strip() for each in config.of_listener(listener, SASL_ENABLED_MECHANISMS)))
    if not enabled:
        raise ConfigError(f"{name} is empty, but the listener {listener} needs at least one of {served}.")
    for mechanism in enabled:
        if mechanism == GSSAPI:
            raise ConfigError(f"{name} has GSSAPI (Kerberos), which is not supported: use some of {served}.")
        if mechanism not in SERVED:
            raise ConfigError(f"{name} has '{mechanism[:80]}', which is not supported: use some of {served}.")
    return enabled, name


def _names(listener: str, mechanism: str, key: str) -> tuple[str, str]:
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{key}", f"{mechanism.lower()}.{key}"


def _first_text(config: Config, names: tuple[str, ...]) -> str | None:
    for name in names:
        for texts in (config.broker, config.cluster, config.static):
            if (text := texts.get(name)) is not None:
                return text
    return None


def _module(
    config: Config,
    listener: str,
    mechanism: str,
    enabled_by: str,
    sections: Mapping[str, tuple[LoginModule, ...]],
) -> LoginModule:
    names = _names(listener, mechanism, SASL_JAAS_CONFIG.name)
    for name in names:
        if (text := _first_text(config, (name,))) is not None:
            try:
                return _checked(parse_jaas(text), mechanism, name)
            except JaasError as error:
                raise ConfigError(f"{name} {error}.") from None
    for section in (f"{listener.lower()}.{SECTION}", SECTION):
        if section in sections:
            return _of_section(sections[section], mechanism, f"{JAAS_FILE.name}: the section {section}")
    bare = (f"{LISTENER_PREFIX}{listener.lower()}.{SASL_JAAS_CONFIG.name}", SASL_JAAS_CONFIG.name)
    if used := [name for name in bare if _first_text(config, (name,)) is not None]:
        raise ConfigError(f"{used[0]} has no effect on a broker: set {names[0]} instead.")
    raise ConfigError(f"{enabled_by} has {mechanism}, but {names[0]} is not set.")


def _of_section(modules: tuple[LoginModule, ...], mechanism: str, where: str) -> LoginModule:
    for module in modules:
        if module.name not in MODULE_OF.values():
            raise ConfigError(f"{where} has the login module {module.name[:120]}, which is not supported.")
    found = [module for module in modules if module.name == MODULE_OF[mechanism]]
    if len(found) != 1:
        raise ConfigError(f"{where} must have {MODULE_OF[mechanism]} once, for {mechanism}, but has it {len(found)}x.")
    return found[0]


def _checked(module: LoginModule, mechanism: str, name: str) -> LoginModule:
    if module.name != MODULE_OF[mechanism]:
        raise ConfigError(f"{name} has the login module {module.name[:120]}, but must have {MODULE_OF[mechanism]}.")
    return module


def _plain_users(listener: str, module: LoginModule) -> PlainUsers:
    users = {
        option.removeprefix(USER_PREFIX): value
        for option, value in module.options.items()
        if option.startswith(USER_PREFIX)
    }
    for name, password in users.items():
        if not name or not password:
            raise ConfigError(
                f"The JAAS configuration of PLAIN on the listener {listener} has a user without a name or a password."
            )
    return PlainUsers(users)


def _jaas_file(config: Config) -> Mapping[str, tuple[LoginModule, ...]]:
    path = config[JAAS_FILE]
    if path is None:
        return {}
    try:
        return parse_jaas_file(read_settings_file(path).decode())
    except OSError as error:
        raise ConfigError(f"{JAAS_FILE.name} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{JAAS_FILE.name} must be a text in UTF-8.") from None
    except JaasError as error:
        raise ConfigError(f"{JAAS_FILE.name} {error}.") from None
