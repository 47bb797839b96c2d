"""Keys of ACLs, TLS, SASL, OAuth, Kerberos and delegation tokens."""

from .key import (
    DAY_MS,
    HIGH,
    HOUR_MS,
    JAVA,
    KERBEROS,
    KIB,
    LOW,
    MEDIUM,
    MINUTE_MS,
    NO_ASSERTION,
    ONE_TOKEN_REQUEST,
    PER_BROKER,
    authorizer_key,
    broker_key,
)
from .values import Boolean, Class, Double, Int, List, Long, Password, Short, String


def _check_principals(text: str) -> str | None:
    """Kafka separates principals by semicolons, since distinguished names contain commas."""
    invalid = [part.strip() for part in text.split(";") if part.strip() and ":" not in part]
    return f"must be principals such as User:ann, separated by semicolons, not '{invalid[0]}'" if invalid else None


# fmt: off

AUTHORIZER_CLASS_NAME = broker_key("authorizer.class.name", String(), "", LOW,
    doc="Authorizer: empty allows every operation; `org.apache.kafka.metadata.authorizer.StandardAuthorizer` enables "
        "ACLs.")
SUPER_USERS = authorizer_key("super.users", String(check=_check_principals), "",
    doc="Principals that may perform every operation regardless of ACLs, separated by semicolons.")
ALLOW_EVERYONE_IF_NO_ACL_FOUND = authorizer_key("allow.everyone.if.no.acl.found", Boolean(), False,
    doc="Whether every principal may access a resource that no ACL applies to.")
PRINCIPAL_BUILDER_CLASS = broker_key(
    "principal.builder.class",
    Class(),
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", MEDIUM, PER_BROKER, effect=JAVA,
    doc="Java class that derives the principal from a connection; a node refuses to start with any class but the "
        "default.")
SECURITY_PROVIDERS = broker_key("security.providers", String(), None, LOW, effect=JAVA,
    doc="Java classes of security providers.")

# TLS.

SSL_CLIENT_AUTH = broker_key("ssl.client.auth",
    String(one_of=("required", "requested", "none")), "none", MEDIUM, PER_BROKER,
    doc="Whether clients must present a certificate: required, requested or none.")
SSL_ENABLED_PROTOCOLS = broker_key("ssl.enabled.protocols", List(), ("TLSv1.2", "TLSv1.3"), MEDIUM, PER_BROKER,
    doc="TLS versions that are enabled. Versions below TLSv1.2 are refused.")
SSL_PROTOCOL = broker_key("ssl.protocol", String(), "TLSv1.3", MEDIUM, PER_BROKER,
    doc="Name of the TLS protocol; ssl.enabled.protocols decides which versions are enabled.")
SSL_CIPHER_SUITES = broker_key("ssl.cipher.suites", List(), (), MEDIUM, PER_BROKER,
    doc="Allowed cipher suites by Java's names; empty selects suites with forward secrecy.")
SSL_KEYSTORE_TYPE = broker_key("ssl.keystore.type", String(), "JKS", MEDIUM, PER_BROKER,
    doc="Format of the key store: JKS, PKCS12 or PEM. The first bytes of a file distinguish JKS from PKCS12.")
SSL_KEYSTORE_LOCATION = broker_key("ssl.keystore.location", String(), None, MEDIUM, PER_BROKER,
    doc="Key store file with this node's private key and certificate.")
SSL_KEYSTORE_PASSWORD = broker_key("ssl.keystore.password", Password(), None, MEDIUM, PER_BROKER,
    doc="Password of the key store file.")
SSL_KEYSTORE_KEY = broker_key("ssl.keystore.key", Password(), None, MEDIUM, PER_BROKER,
    doc="This node's private key in PEM format.")
SSL_KEYSTORE_CERTIFICATE_CHAIN = broker_key("ssl.keystore.certificate.chain", Password(), None, MEDIUM, PER_BROKER,
    doc="This node's certificate chain in PEM format.")
SSL_KEY_PASSWORD = broker_key("ssl.key.password", Password(), None, MEDIUM, PER_BROKER,
    doc="Password of the private key.")
SSL_TRUSTSTORE_TYPE = broker_key("ssl.truststore.type", String(), "JKS", MEDIUM, PER_BROKER,
    doc="Format of the trust store: JKS, PKCS12 or PEM.")
SSL_TRUSTSTORE_LOCATION = broker_key("ssl.truststore.location", String(), None, MEDIUM, PER_BROKER,
    doc="Trust store file with the trusted certificates.")
SSL_TRUSTSTORE_PASSWORD = broker_key("ssl.truststore.password", Password(), None, MEDIUM, PER_BROKER,
    doc="Password of the trust store file.")
SSL_TRUSTSTORE_CERTIFICATES = broker_key("ssl.truststore.certificates", Password(), None, MEDIUM, PER_BROKER,
    doc="Trusted certificates in PEM format.")
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = broker_key("ssl.endpoint.identification.algorithm",
    String(), "https", LOW, PER_BROKER,
    doc="Algorithm that verifies a server's host name against its certificate; empty disables verification.")
SSL_PRINCIPAL_MAPPING_RULES = broker_key("ssl.principal.mapping.rules", String(), "DEFAULT", LOW,
    doc="Rules that map the distinguished name of a client certificate to a user name. Patterns are those of RE2.")
SSL_ALLOW_DN_CHANGES = broker_key("ssl.allow.dn.changes", Boolean(), False, LOW,
    doc="Whether a replaced certificate may have another distinguished name.")
SSL_ALLOW_SAN_CHANGES = broker_key("ssl.allow.san.changes", Boolean(), False, LOW,
    doc="Whether a replaced certificate may omit subject alternative names of its predecessor.")
SSL_PROVIDER = broker_key("ssl.provider", String(), None, MEDIUM, PER_BROKER, effect=JAVA,
    doc="Java security provider for TLS.")
SSL_ENGINE_FACTORY_CLASS = broker_key("ssl.engine.factory.class", Class(), None, LOW, PER_BROKER, effect=JAVA,
    doc="Java class that creates TLS engines.")
SSL_KEYMANAGER_ALGORITHM = broker_key("ssl.keymanager.algorithm", String(), "SunX509", MEDIUM, PER_BROKER, effect=JAVA,
    doc="Algorithm of Java's key manager.")
SSL_TRUSTMANAGER_ALGORITHM = broker_key("ssl.trustmanager.algorithm", String(), "PKIX", MEDIUM, PER_BROKER, effect=JAVA,
    doc="Algorithm of Java's trust manager.")
SSL_SECURE_RANDOM_IMPLEMENTATION = broker_key("ssl.secure.random.implementation", String(), None, LOW, PER_BROKER,
    effect=JAVA,
    doc="Java's random number generator for TLS.")

# SASL.

SASL_ENABLED_MECHANISMS = broker_key("sasl.enabled.mechanisms", List(), ("GSSAPI",), MEDIUM, PER_BROKER,
    doc="SASL mechanisms that are offered to clients.")
SASL_MECHANISM_INTER_BROKER_PROTOCOL = broker_key("sasl.mechanism.inter.broker.protocol",
    String(), "GSSAPI", MEDIUM, PER_BROKER,
    doc="SASL mechanism between brokers.")
SASL_MECHANISM_CONTROLLER_PROTOCOL = broker_key("sasl.mechanism.controller.protocol", String(), "GSSAPI", HIGH,
    doc="SASL mechanism between brokers and controllers.")
SASL_JAAS_CONFIG = broker_key("sasl.jaas.config", Password(), None, MEDIUM, PER_BROKER,
    doc="Login configuration of a SASL mechanism, as one entry in JAAS format.")
SASL_SERVER_MAX_RECEIVE_SIZE = broker_key("sasl.server.max.receive.size", Int(), 512 * KIB, MEDIUM,
    doc="Maximum size, in bytes, of a message during SASL authentication.")
SASL_SERVER_CALLBACK_HANDLER_CLASS = broker_key("sasl.server.callback.handler.class", Class(), None, MEDIUM,
    effect=JAVA,
    doc="Java class that verifies credentials on the server.")
SASL_CLIENT_CALLBACK_HANDLER_CLASS = broker_key("sasl.client.callback.handler.class", Class(), None, MEDIUM,
    effect=JAVA,
    doc="Java class that handles the client side of SASL authentication.")
SASL_LOGIN_CALLBACK_HANDLER_CLASS = broker_key("sasl.login.callback.handler.class", Class(), None, MEDIUM, effect=JAVA,
    doc="Java class that obtains the credentials for a login.")
SASL_LOGIN_CLASS = broker_key("sasl.login.class", Class(), None, MEDIUM, effect=JAVA,
    doc="Java class that performs the login.")
SASL_LOGIN_CONNECT_TIMEOUT_MS = broker_key("sasl.login.connect.timeout.ms", Int(), None, LOW, effect=ONE_TOKEN_REQUEST,
    doc="Time in milliseconds that a connection to the token provider may take.")
SASL_LOGIN_READ_TIMEOUT_MS = broker_key("sasl.login.read.timeout.ms", Int(), None, LOW, effect=ONE_TOKEN_REQUEST,
    doc="Time in milliseconds that the token provider may take to respond.")
SASL_LOGIN_RETRY_BACKOFF_MS = broker_key("sasl.login.retry.backoff.ms", Long(), 100, LOW, effect=ONE_TOKEN_REQUEST,
    doc="First pause, in milliseconds, before a request to the token provider is retried.")
SASL_LOGIN_RETRY_BACKOFF_MAX_MS = broker_key("sasl.login.retry.backoff.max.ms", Long(), 10_000, LOW,
    effect=ONE_TOKEN_REQUEST,
    doc="Longest pause, in milliseconds, before a request to the token provider is retried.")
SASL_LOGIN_REFRESH_WINDOW_FACTOR = broker_key("sasl.login.refresh.window.factor", Double(), 0.8, MEDIUM, PER_BROKER,
    doc="Fraction of its lifetime after which a credential is refreshed.")
SASL_LOGIN_REFRESH_WINDOW_JITTER = broker_key("sasl.login.refresh.window.jitter", Double(), 0.05, MEDIUM, PER_BROKER,
    effect=ONE_TOKEN_REQUEST,
    doc="Maximum random addition to sasl.login.refresh.window.factor, as a fraction of the lifetime.")
SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS = broker_key("sasl.login.refresh.min.period.seconds",
    Short(), 60, MEDIUM, PER_BROKER, effect=ONE_TOKEN_REQUEST,
    doc="Minimum age, in seconds, of a credential that is refreshed.")
SASL_LOGIN_REFRESH_BUFFER_SECONDS = broker_key("sasl.login.refresh.buffer.seconds", Short(), 300, MEDIUM, PER_BROKER,
    effect=ONE_TOKEN_REQUEST,
    doc="Time in seconds before its expiry at which a credential is refreshed at the latest.")

# OAuth.

SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL = broker_key("sasl.oauthbearer.token.endpoint.url", String(), None, MEDIUM,
    doc="URL of the token endpoint of the OAuth provider.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = broker_key("sasl.oauthbearer.jwks.endpoint.url", String(), None, MEDIUM,
    doc="URL of the JSON Web Key Set (JWKS) that verifies tokens.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = broker_key("sasl.oauthbearer.jwks.endpoint.refresh.ms",
    Long(), HOUR_MS, LOW,
    doc="Interval, in milliseconds, at which the JWKS is fetched again.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = broker_key("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    Long(), 100, LOW,
    doc="First pause, in milliseconds, before a failed fetch of the JWKS is retried.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = broker_key("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    Long(), 10_000, LOW,
    doc="Longest pause, in milliseconds, before a failed fetch of the JWKS is retried.")
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = broker_key("sasl.oauthbearer.expected.audience", List(), (), HIGH,
    doc="Accepted audiences; a token must name one of them.")
SASL_OAUTHBEARER_EXPECTED_ISSUER = broker_key("sasl.oauthbearer.expected.issuer", String(), None, HIGH,
    doc="Accepted issuer of tokens.")
SASL_OAUTHBEARER_ALLOW_UNVERIFIED_ISSUER = broker_key("sasl.oauthbearer.allow.unverified.issuer", Boolean(), False,
    MEDIUM, hidden=True,
    doc="Whether tokens of any issuer are accepted if sasl.oauthbearer.expected.issuer is not set. A later Kafka has "
        "this key, too.")
SASL_OAUTHBEARER_ALLOW_UNVERIFIED_AUDIENCE = broker_key("sasl.oauthbearer.allow.unverified.audience", Boolean(), False,
    MEDIUM, hidden=True,
    doc="Whether tokens for any audience are accepted if sasl.oauthbearer.expected.audience is not set. A later Kafka "
        "has this key, too.")
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = broker_key("sasl.oauthbearer.clock.skew.seconds", Int(), 30, LOW,
    doc="Tolerated difference, in seconds, between the clocks of the token issuer and this node.")
SASL_OAUTHBEARER_SCOPE = broker_key("sasl.oauthbearer.scope", String(), None, MEDIUM,
    doc="Scope that is requested for a token.")
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME = broker_key("sasl.oauthbearer.scope.claim.name", String(), "scope", LOW,
    doc="Claim that holds the scopes of a token.")
SASL_OAUTHBEARER_SUB_CLAIM_NAME = broker_key("sasl.oauthbearer.sub.claim.name", String(), "sub", LOW,
    doc="Claim that holds the user name.")
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID = broker_key("sasl.oauthbearer.client.credentials.client.id",
    String(), None, MEDIUM,
    doc="Client id for token requests.")
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET = broker_key("sasl.oauthbearer.client.credentials.client.secret",
    Password(), None, MEDIUM,
    doc="Client secret for token requests.")
SASL_OAUTHBEARER_ASSERTION_ALGORITHM = broker_key("sasl.oauthbearer.assertion.algorithm",
    String(one_of=("ES256", "RS256"), fold=True), "RS256", MEDIUM, effect=NO_ASSERTION,
    doc="Algorithm that signs the client assertion (a JWT).")
SASL_OAUTHBEARER_ASSERTION_FILE = broker_key("sasl.oauthbearer.assertion.file", String(), None, MEDIUM,
    effect=NO_ASSERTION,
    doc="File with a prepared client assertion.")
SASL_OAUTHBEARER_ASSERTION_TEMPLATE_FILE = broker_key("sasl.oauthbearer.assertion.template.file",
    String(), None, MEDIUM, effect=NO_ASSERTION,
    doc="File with the static header and claims of the client assertion.")
SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE = broker_key("sasl.oauthbearer.assertion.private.key.file",
    String(), None, MEDIUM, effect=NO_ASSERTION,
    doc="File with the private key that signs the client assertion.")
SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_PASSPHRASE = broker_key("sasl.oauthbearer.assertion.private.key.passphrase",
    Password(), None, MEDIUM, effect=NO_ASSERTION,
    doc="Passphrase of the private key that signs the client assertion.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_AUD = broker_key("sasl.oauthbearer.assertion.claim.aud", String(), None, MEDIUM,
    effect=NO_ASSERTION,
    doc="Audience (aud claim) of the client assertion.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_ISS = broker_key("sasl.oauthbearer.assertion.claim.iss", String(), None, MEDIUM,
    effect=NO_ASSERTION,
    doc="Issuer (iss claim) of the client assertion.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_SUB = broker_key("sasl.oauthbearer.assertion.claim.sub", String(), None, MEDIUM,
    effect=NO_ASSERTION,
    doc="Subject (sub claim) of the client assertion.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_EXP_SECONDS = broker_key("sasl.oauthbearer.assertion.claim.exp.seconds",
    Int(min=0, max=86_400), 300, LOW, effect=NO_ASSERTION,
    doc="Time in seconds after which the client assertion expires.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_NBF_SECONDS = broker_key("sasl.oauthbearer.assertion.claim.nbf.seconds",
    Int(min=0, max=3600), 60, LOW, effect=NO_ASSERTION,
    doc="Time in seconds before its creation from which the client assertion is valid.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_JTI_INCLUDE = broker_key("sasl.oauthbearer.assertion.claim.jti.include",
    Boolean(), False, MEDIUM, effect=NO_ASSERTION,
    doc="Whether the client assertion has a unique id (jti claim).")
SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS = broker_key("sasl.oauthbearer.jwt.retriever.class",
    Class(), "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", MEDIUM, effect=JAVA,
    doc="Java class that fetches tokens.")
SASL_OAUTHBEARER_JWT_VALIDATOR_CLASS = broker_key("sasl.oauthbearer.jwt.validator.class",
    Class(), "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", MEDIUM, effect=JAVA,
    doc="Java class that validates tokens.")

# Kerberos.

SASL_KERBEROS_SERVICE_NAME = broker_key("sasl.kerberos.service.name", String(), None, MEDIUM, PER_BROKER,
    effect=KERBEROS,
    doc="Kerberos name of the Kafka service.")
SASL_KERBEROS_KINIT_CMD = broker_key("sasl.kerberos.kinit.cmd", String(), "/usr/bin/kinit", MEDIUM, PER_BROKER,
    effect=KERBEROS,
    doc="Path of kinit.")
SASL_KERBEROS_MIN_TIME_BEFORE_RELOGIN = broker_key("sasl.kerberos.min.time.before.relogin",
    Long(), MINUTE_MS, MEDIUM, PER_BROKER, effect=KERBEROS,
    doc="Minimum time, in milliseconds, between two Kerberos logins.")
SASL_KERBEROS_TICKET_RENEW_JITTER = broker_key("sasl.kerberos.ticket.renew.jitter", Double(), 0.05, MEDIUM, PER_BROKER,
    effect=KERBEROS,
    doc="Random variation of the time of a ticket renewal, as a fraction.")
SASL_KERBEROS_TICKET_RENEW_WINDOW_FACTOR = broker_key("sasl.kerberos.ticket.renew.window.factor",
    Double(), 0.8, MEDIUM, PER_BROKER, effect=KERBEROS,
    doc="Fraction of its lifetime after which a ticket is renewed.")
SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES = broker_key("sasl.kerberos.principal.to.local.rules",
    List(), ("DEFAULT",), MEDIUM, PER_BROKER, effect=KERBEROS,
    doc="Rules that map a Kerberos principal to a user name.")

# Delegation tokens.

DELEGATION_TOKEN_SECRET_KEY = broker_key("delegation.token.secret.key", Password(), None, MEDIUM,
    doc="Secret with which all brokers sign delegation tokens.")
DELEGATION_TOKEN_MAX_LIFETIME_MS = broker_key("delegation.token.max.lifetime.ms", Long(min=1), 7 * DAY_MS, MEDIUM,
    doc="Maximum lifetime of a delegation token, in milliseconds, including renewals.")
DELEGATION_TOKEN_EXPIRY_TIME_MS = broker_key("delegation.token.expiry.time.ms", Long(min=1), DAY_MS, MEDIUM,
    doc="Time in milliseconds within which a delegation token must be renewed.")
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS = broker_key("delegation.token.expiry.check.interval.ms",
    Long(min=1), HOUR_MS, LOW,
    doc="Interval, in milliseconds, between two searches for expired delegation tokens.")
