"""How this node gets the bearer tokens with which it logs in to other nodes, in Kafka's keys.

    sasl.oauthbearer.token.endpoint.url                      https, or a file that holds the token
    sasl.oauthbearer.client.credentials.client.id, .secret   or `clientId` and `clientSecret` of the JAAS configuration
    sasl.oauthbearer.scope                                   or `scope` of the JAAS configuration

trioka.oauth.allowed.urls or trioka.oauth.allowed.files must list the URL, as for the key set of the issuer. Kafka's
classes that do the same may be named. Without an endpoint Kafka's client would make an unsigned token, which no trioka
accepts: the node does not start.
"""

from collections.abc import Mapping
from typing import Final

from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.sasl.token_request import ClientCredentials

from .layers import ConfigError
from .oauth import PACKAGE, Values, check_allowed
from .security_keys import (
    SASL_LOGIN_CALLBACK_HANDLER_CLASS,
    SASL_LOGIN_CLASS,
    SASL_LOGIN_REFRESH_WINDOW_FACTOR,
    SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID,
    SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET,
    SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS,
    SASL_OAUTHBEARER_SCOPE,
    SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL,
)

LOGIN_HANDLERS: Final = frozenset(
    {f"{PACKAGE}.OAuthBearerLoginCallbackHandler", f"{PACKAGE}.secured.OAuthBearerLoginCallbackHandler"}
)
DEFAULT_RETRIEVER: Final = f"{PACKAGE}.DefaultJwtRetriever"
FROM_FILE: Final = f"{PACKAGE}.FileJwtRetriever"
BY_CREDENTIALS: Final = f"{PACKAGE}.ClientCredentialsJwtRetriever"
UNSECURED: Final = "unsecuredLogin"


@frozen
class TokenSettings:
    url: str
    credentials: ClientCredentials | None  # None if the URL is that of a file
    refresh_factor: float


def token_settings(values: Values, options: Mapping[str, str]) -> TokenSettings:
    """`options` are those of the JAAS configuration. Raises ConfigError, with one sentence that names the key."""
    url_key = SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL
    url = values(url_key)
    if any(name.startswith(UNSECURED) for name in options):
        raise ConfigError(f"The JAAS configuration has {UNSECURED}…, but an unsigned token is accepted by no node.")
    if not url:
        raise ConfigError(f"{url_key.name} is not set: the nodes log in to each other with a token from there.")
    check_allowed(url_key.name, url, values)
    is_file = url.startswith("file:")
    _check_classes(values, FROM_FILE if is_file else BY_CREDENTIALS)
    return TokenSettings(
        url=url,
        credentials=None if is_file else _credentials(values, options),
        refresh_factor=min(max(values(SASL_LOGIN_REFRESH_WINDOW_FACTOR), 0.5), 1.0),
    )


def _check_classes(values: Values, retriever: str) -> None:
    for key, known in (
        (SASL_LOGIN_CALLBACK_HANDLER_CLASS, LOGIN_HANDLERS),
        (SASL_LOGIN_CLASS, frozenset({f"{PACKAGE}.internals.OAuthBearerRefreshingLogin"})),
        (SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS, frozenset({DEFAULT_RETRIEVER, retriever})),
    ):
        name = values(key)
        if name and name not in known:
            raise ConfigError(
                f"{key.name} is '{name[:200]}', but trioka runs no Java classes. The nodes get their tokens with "
                "client credentials or from a file: remove the key."
            )


def _credentials(values: Values, options: Mapping[str, str]) -> ClientCredentials:
    secret_key = SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET
    client_id = values(SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID) or options.get("clientId", "")
    configured = values(secret_key)
    secret = configured.value if configured is not None else options.get("clientSecret", "")
    if not client_id or not secret:
        raise ConfigError(
            f"{SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID.name} and {secret_key.name} are not both set, with which "
            "this node requests its tokens."
        )
    return ClientCredentials(client_id, secret, values(SASL_OAUTHBEARER_SCOPE) or options.get("scope", ""))
