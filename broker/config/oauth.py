"""OAUTHBEARER settings in server.properties: the issuer's keys, and the claims that a token must have.

A node does not start without a key set, an issuer and an audience: Apache Kafka 4.3.1 would then accept unsigned
tokens, or tokens that were issued for other services. A later Kafka requires the last two with the same opt-outs.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.sasl.issuer_url import check_issuer_url
from trioka.protocol.sasl.jwt import Rules

from .key import Key
from .layers import ConfigError
from .security_keys import (
    SASL_OAUTHBEARER_ALLOW_UNVERIFIED_AUDIENCE,
    SASL_OAUTHBEARER_ALLOW_UNVERIFIED_ISSUER,
    SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
    SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    SASL_OAUTHBEARER_EXPECTED_ISSUER,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SASL_OAUTHBEARER_JWT_VALIDATOR_CLASS,
    SASL_OAUTHBEARER_SCOPE_CLAIM_NAME,
    SASL_OAUTHBEARER_SUB_CLAIM_NAME,
    SASL_SERVER_CALLBACK_HANDLER_CLASS,
)
from .trioka_keys import OAUTH_ALLOWED_FILES, OAUTH_ALLOWED_URLS

PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
CALLBACK_HANDLERS: Final = frozenset(
    {
        f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
    }
)
VALIDATORS: Final = frozenset({f"{PACKAGE}.DefaultJwtValidator", f"{PACKAGE}.BrokerJwtValidator"})
FILE: Final = "file://"
MIN_INTERVAL_MS: Final = 1000  # between two fetches for unknown keys, and for the regular ones

Values = Callable[[Key[Any]], Any]
"""The value of a key as configured for the listener and the mechanism."""


@frozen
class OAuthSettings:
    jwks_url: str
    rules: Rules
    refresh_ms: int
    first_retry_ms: int
    max_retry_ms: int


def oauth_settings(values: Values) -> OAuthSettings:
    """Raises ConfigError, with one sentence that names the key, unless the mechanism can be offered safely."""
    _check_classes(values)
    if find_spec("cryptography") is None:
        raise ConfigError("OAUTHBEARER needs the Python package cryptography: install trioka[security].")
    url = values(SASL_OAUTHBEARER_JWKS_ENDPOINT_URL)
    if not url:
        raise ConfigError(
            f"{SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name} is not set: OAUTHBEARER needs the key set that verifies tokens."
        )
    check_allowed(SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name, url, values)
    issuer = values(SASL_OAUTHBEARER_EXPECTED_ISSUER)
    if not issuer and not values(SASL_OAUTHBEARER_ALLOW_UNVERIFIED_ISSUER):
        raise ConfigError(
            f"{SASL_OAUTHBEARER_EXPECTED_ISSUER.name} is not set: OAUTHBEARER needs the issuer of tokens, or "
            f"{SASL_OAUTHBEARER_ALLOW_UNVERIFIED_ISSUER.name}=true."
        )
    audiences = frozenset(values(SASL_OAUTHBEARER_EXPECTED_AUDIENCE))
    if not audiences and not values(SASL_OAUTHBEARER_ALLOW_UNVERIFIED_AUDIENCE):
        raise ConfigError(
            f"{SASL_OAUTHBEARER_EXPECTED_AUDIENCE.name} is not set: OAUTHBEARER needs an audience of tokens, or "
            f"{SASL_OAUTHBEARER_ALLOW_UNVERIFIED_AUDIENCE.name}=true."
        )
    return OAuthSettings(
        jwks_url=url,
        rules=Rules(
            issuer=issuer or None,
            audiences=audiences,
            clock_skew_s=max(0, values(SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS)),
            subject_claim=_claim(values, SASL_OAUTHBEARER_SUB_CLAIM_NAME),
            scope_claim=_claim(values, SASL_OAUTHBEARER_SCOPE_CLAIM_NAME),
        ),
        refresh_ms=max(MIN_INTERVAL_MS, values(SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS)),
        first_retry_ms=max(1, values(SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS)),
        max_retry_ms=max(MIN_INTERVAL_MS, values(SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS)),
    )


def _check_classes(values: Values) -> None:
    for key, known in ((SASL_SERVER_CALLBACK_HANDLER_CLASS, CALLBACK_HANDLERS),
                       (SASL_OAUTHBEARER_JWT_VALIDATOR_CLASS, VALIDATORS)):  # fmt: skip
        name = values(key)
        if name and name not in known:
            raise ConfigError(
                f"{key.name} is '{name[:200]}' for OAUTHBEARER, but trioka runs no Java classes: remove the key."
            )


def check_allowed(key_name: str, url: str, values: Values) -> None:
    """As in Kafka, with Java's system properties org.apache.kafka.sasl.oauthbearer.allowed.urls and .files."""
    if url.startswith("file:"):
        listed, allowed, named = OAUTH_ALLOWED_FILES, values(OAUTH_ALLOWED_FILES), url.removeprefix(FILE)
    else:
        listed, allowed, named = OAUTH_ALLOWED_URLS, values(OAUTH_ALLOWED_URLS), url
    try:
        check_issuer_url(url)
    except ValueError as error:
        raise ConfigError(f"{key_name} {error}.") from None
    if named not in allowed:
        raise ConfigError(f"{key_name} is '{url[:200]}', which {listed.name} does not list.")


def _claim(values: Values, key: Key[str]) -> str:
    name: str = values(key).strip()
    if not name:
        raise ConfigError(f"{key.name} is empty, but must name a claim.")
    return name
