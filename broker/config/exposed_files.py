"""Warns about files with secrets that every user of the machine can read."""

import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from .key import broker_key_of
from .operator_files import file_mode

KEY_STORE_LOCATION: Final = "ssl.keystore.location"
JAAS_CONFIG: Final = "sasl.jaas.config"


def exposed_files(
    path: str | None, texts: Mapping[str, str], *, mode_of: Callable[[str], int | None] = file_mode
) -> Iterator[str]:
    """Yield one warning for each file that others may read: the properties file at `path`, whose texts are given
    before references are resolved, if it contains secrets; and every key store that it names."""
    secrets = sorted(name for name, text in texts.items() if text.strip() and _is_secret(name) and "${" not in text)
    if path is not None and secrets and _is_exposed(mode_of(path)):
        yield f"{path} contains {', '.join(secrets)} and is readable by every user; run: chmod 600 {path}"
    stores = {text.strip() for name, text in texts.items() if name.endswith(KEY_STORE_LOCATION) and text.strip()}
    for store in sorted(stores):
        if _is_exposed(mode_of(store)):
            yield f"The key store {store} is readable by every user; run: chmod 600 {store}"


def _is_secret(name: str) -> bool:
    if name.endswith(JAAS_CONFIG):
        return True
    key = broker_key_of(name)
    return key is not None and key.type.sensitive


def _is_exposed(mode: int | None) -> bool:
    return mode is not None and bool(mode & stat.S_IROTH)
