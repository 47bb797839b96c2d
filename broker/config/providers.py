"""Replaces references such as `${file:/run/secrets/kafka:password}` in configuration values.

    config.providers=file,env,dir
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/run/secrets
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.env.param.allowlist.pattern=KAFKA_SECRET_.*
    config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider

    ${file:PATH:KEY}    the value of KEY in a properties file
    ${dir:FOLDER:FILE}  the whole text of a file
    ${env:NAME}         an environment variable

The three class names are compared with the names of Kafka's classes; nothing is loaded. Kafka leaves a reference that
it cannot resolve in the value, so that the reference itself becomes the password. Here it is an error: the message
names the key and the reference, never a value. A reference in a value that a client sets while the broker runs is not
resolved, because a client must not read files of the broker.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from .layers import ConfigError
from .operator_files import exists, read_file, real_path
from .properties import PropertiesError, parse_properties

CONFIG_PROVIDERS: Final = "config.providers"
PROVIDER_PREFIX: Final = f"{CONFIG_PROVIDERS}."
PACKAGE: Final = "org.apache.kafka.common.config.provider."
CLASS_NAMES: Final[Mapping[str, str]] = {
    "file": f"{PACKAGE}FileConfigProvider",
    "env": f"{PACKAGE}EnvVarConfigProvider",
    "dir": f"{PACKAGE}DirectoryConfigProvider",
}
KIND_OF_CLASS: Final = {name: kind for kind, name in CLASS_NAMES.items()}
PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    "file": frozenset({"allowed.paths"}),
    "env": frozenset({"allowlist.pattern"}),
    "dir": frozenset({"allowed.paths"}),
}

# Provider, path and key. As in Kafka, the path ends at the first colon, and the key may contain further ones.
_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")

ReadFile: TypeAlias = Callable[[str], bytes]


class Provider(NamedTuple):
    """A declared provider: one of the kinds in CLASS_NAMES, and its parameters."""

    name: str
    kind: str
    allowed_paths: tuple[str, ...] | None = None  # resolved; None allows every path
    allowlist_pattern: str | None = None


def resolve_references(
    texts: Mapping[str, str], *, environment: Mapping[str, str] | None = None, read: ReadFile = read_file
) -> dict[str, str]:
    """Return the texts with every reference to a declared provider replaced by its value.

    `environment` is that of this process if it is not given. ConfigError if a provider is declared wrongly, or if a
    reference has no value.
    """
    if CONFIG_PROVIDERS not in texts and not any("${" in text for text in texts.values()):
        return dict(texts)
    resolver = _Resolver(declared_providers(texts), os.environ if environment is None else environment, read)
    return {
        name: text if "${" not in text or name.startswith(CONFIG_PROVIDERS) else resolver.resolved(name, text)
        for name, text in texts.items()
    }


def declared_providers(texts: Mapping[str, str]) -> dict[str, Provider]:
    """The providers that `config.providers` lists, by name."""
    names = [name.strip() for name in texts.get(CONFIG_PROVIDERS, "").split(",") if name.strip()]
    return {name: _declared(name, texts) for name in names}


def _declared(name: str, texts: Mapping[str, str]) -> Provider:
    class_key = f"{PROVIDER_PREFIX}{name}.class"
    class_name = texts.get(class_key, "").strip()
    if class_name not in KIND_OF_CLASS:
        known = ", ".join(CLASS_NAMES.values())
        what = f"is '{class_name}'" if class_name else "is not set"
        raise ConfigError(f"{class_key} {what}; it must be one of {known}.")
    kind = KIND_OF_CLASS[class_name]
    prefix = f"{PROVIDER_PREFIX}{name}.param."
    parameters = {key.removeprefix(prefix): text.strip() for key, text in texts.items() if key.startswith(prefix)}
    for parameter in sorted(parameters.keys() - PARAMETERS[kind]):
        known = ", ".join(sorted(PARAMETERS[kind]))
        raise ConfigError(f"{prefix}{parameter} is unknown; the parameters of {class_name} are: {known}.")
    return Provider(
        name,
        kind,
        _allowed_paths(f"{prefix}allowed.paths", parameters.get("allowed.paths")),
        _pattern(f"{prefix}allowlist.pattern", parameters.get("allowlist.pattern")),
    )


def _allowed_paths(key: str, text: str | None) -> tuple[str, ...] | None:
    if not text:
        return None
    paths = [path.strip() for path in text.split(",") if path.strip()]
    for path in paths:
        if not os.path.isabs(path) or not exists(path):
            raise ConfigError(f"{key} has '{path}', which must be an absolute path that exists.")
    return tuple(real_path(path) for path in paths)


def _pattern(key: str, text: str | None) -> str | None:
    if not text:
        return None
    import re2

    try:
        re2.compile(text)
    except re2.error:
        raise ConfigError(f"{key} is '{text}', which is not a valid regular expression.") from None
    return text


class _Resolver:
    """Resolves the references of one configuration. Each file is read once."""

    def __init__(self, providers: Mapping[str, Provider], environment: Mapping[str, str], read: ReadFile) -> None:
        self._providers = providers
        self._environment = environment
        self._read = read
        self._contents: dict[str, bytes] = {}

    def resolved(self, name: str, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            provider = self._providers.get(match[1])
            if provider is not None:
                return self._value(provider, f"{name} refers to {match[0]}", match[2] or "", match[3])
            if match[1] in CLASS_NAMES:
                raise ConfigError(
                    f"{name} refers to {match[0]}, and no such provider is declared: set config.providers={match[1]} "
                    f"and {PROVIDER_PREFIX}{match[1]}.class={CLASS_NAMES[match[1]]}."
                )
            return match[0]  # as in Kafka: "${" may be part of a value

        return _REFERENCE.sub(value, text)

    def _value(self, provider: Provider, where: str, path: str, key: str) -> str:
        if provider.kind == "env":
            return self._variable(provider, where, path, key)
        if not path:
            raise ConfigError(f"{where}, which must name a path and a key, such as ${{{provider.name}:/path:key}}.")
        if provider.kind == "dir":
            if key in ("", ".", "..") or "/" in key:
                raise ConfigError(f"{where}, and '{key}' is not the name of a file in that folder.")
            return self._text(where, self._content(provider, where, os.path.join(path, key)))
        content = self._content(provider, where, path)
        try:
            values = parse_properties(content)
        except PropertiesError:  # its message may quote the file
            raise ConfigError(f"{where}, and {path} is not a valid properties file.") from None
        if key not in values:
            raise ConfigError(f"{where}, and {path} has no key '{key}'.")
        return values[key]

    def _variable(self, provider: Provider, where: str, path: str, name: str) -> str:
        if path:
            raise ConfigError(f"{where}, which must be the name of a variable without a path.")
        if provider.allowlist_pattern is not None:
            import re2

            if re2.fullmatch(provider.allowlist_pattern, name) is None:
                key = f"{PROVIDER_PREFIX}{provider.name}.param.allowlist.pattern"
                raise ConfigError(f"{where}, and {key} does not allow this variable.")
        if name not in self._environment:
            raise ConfigError(f"{where}, and this environment variable is not set.")
        return self._environment[name]

    def _content(self, provider: Provider, where: str, path: str) -> bytes:
        """The content of a file. A symbolic link must not lead out of the allowed paths."""
        real = real_path(path)
        allowed_paths = provider.allowed_paths
        if allowed_paths is not None and not any(
            os.path.commonpath([real, allowed]) == allowed for allowed in allowed_paths
        ):
            key = f"{PROVIDER_PREFIX}{provider.name}.param.allowed.paths"
            raise ConfigError(f"{where}, and {key} does not allow this path.")
        if real not in self._contents:
            try:
                self._contents[real] = self._read(real)
            except OSError as error:
                raise ConfigError(f"{where}, and {path} cannot be read: {error.strerror or error}.") from None
        return self._contents[real]

    def _text(self, where: str, content: bytes) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{where}, and the file is not UTF-8 text.") from None
