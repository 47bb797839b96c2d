"""Keys of ACLs, TLS, SASL, OAuth, Kerberos and delegation tokens."""

from .key import (
    DAY_MS,
    HIGH,
    HOUR_MS,
    JAVA,
    KERBEROS,
    KIB,
    LATER_SECURITY,
    LOW,
    MEDIUM,
    MINUTE_MS,
    PER_BROKER,
    authorizer_key,
    broker_key,
)
from .values import Boolean, Class, Double, Int, List, Long, Password, Short, String


def _no_principals(text: str) -> str | None:
    """Kafka separates them by semicolons, since a distinguished name has commas."""
    wrong = [each.strip() for each in text.split(";") if each.strip() and ":" not in each]
    return f"must be principals such as User:ann, separated by semicolons; '{wrong[0]}' is none" if wrong else None


# fmt: off

AUTHORIZER_CLASS_NAME = broker_key("authorizer.class.name", String(), "", LOW,
    doc="Empty lets everybody do everything; `org.apache.kafka.metadata.authorizer.StandardAuthorizer` turns ACLs on.")
SUPER_USERS = authorizer_key("super.users", String(check=_no_principals), "",
    doc="Who may do everything, whatever the ACLs say: principals, separated by semicolons.")
ALLOW_EVERYONE_IF_NO_ACL_FOUND = authorizer_key("allow.everyone.if.no.acl.found", Boolean(), False,
    doc="Whether everybody may do everything with a resource that no ACL is about.")
PRINCIPAL_BUILDER_CLASS = broker_key(
    "principal.builder.class",
    Class(),
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", MEDIUM, PER_BROKER, effect=JAVA,
    doc="A class that makes the name of a user from a connection. No node starts with another one here.")
SECURITY_PROVIDERS = broker_key("security.providers", String(), None, LOW, effect=JAVA,
    doc="Classes of Java security providers.")

# TLS.

SSL_CLIENT_AUTH = broker_key("ssl.client.auth",
    String(one_of=("required", "requested", "none")), "none", MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="Whether a client has to show a certificate.")
SSL_ENABLED_PROTOCOLS = broker_key("ssl.enabled.protocols", List(), ("TLSv1.2", "TLSv1.3"), MEDIUM, PER_BROKER,
    effect=LATER_SECURITY,
    doc="The versions of TLS that are spoken.")
SSL_PROTOCOL = broker_key("ssl.protocol", String(), "TLSv1.3", MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="The newest version of TLS.")
SSL_CIPHER_SUITES = broker_key("ssl.cipher.suites", List(), (), MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="The cipher suites that are allowed; empty is what the library thinks best.")
SSL_KEYSTORE_TYPE = broker_key("ssl.keystore.type", String(), "JKS", MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="The format of the key store: JKS, PKCS12 or PEM.")
SSL_KEYSTORE_LOCATION = broker_key("ssl.keystore.location", String(), None, MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="The file with this node's key and certificate.")
SSL_KEYSTORE_PASSWORD = broker_key("ssl.keystore.password", Password(), None, MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="The password of that file.")
SSL_KEYSTORE_KEY = broker_key("ssl.keystore.key", Password(), None, MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="This node's private key itself, as PEM.")
SSL_KEYSTORE_CERTIFICATE_CHAIN = broker_key("ssl.keystore.certificate.chain", Password(), None, MEDIUM, PER_BROKER,
    effect=LATER_SECURITY,
    doc="This node's certificates themselves, as PEM.")
SSL_KEY_PASSWORD = broker_key("ssl.key.password", Password(), None, MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="The password of the private key.")
SSL_TRUSTSTORE_TYPE = broker_key("ssl.truststore.type", String(), "JKS", MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="The format of the trust store: JKS, PKCS12 or PEM.")
SSL_TRUSTSTORE_LOCATION = broker_key("ssl.truststore.location", String(), None, MEDIUM, PER_BROKER,
    effect=LATER_SECURITY,
    doc="The file with the certificates that are trusted.")
SSL_TRUSTSTORE_PASSWORD = broker_key("ssl.truststore.password", Password(), None, MEDIUM, PER_BROKER,
    effect=LATER_SECURITY,
    doc="The password of that file.")
SSL_TRUSTSTORE_CERTIFICATES = broker_key("ssl.truststore.certificates", Password(), None, MEDIUM, PER_BROKER,
    effect=LATER_SECURITY,
    doc="The trusted certificates themselves, as PEM.")
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = broker_key("ssl.endpoint.identification.algorithm",
    String(), "https", LOW, PER_BROKER, effect=LATER_SECURITY,
    doc="How a server's name is compared with its certificate; empty does not compare.")
SSL_PRINCIPAL_MAPPING_RULES = broker_key("ssl.principal.mapping.rules", String(), "DEFAULT", LOW, effect=LATER_SECURITY,
    doc="How a certificate's name becomes the name of a user.")
SSL_ALLOW_DN_CHANGES = broker_key("ssl.allow.dn.changes", Boolean(), False, LOW, effect=LATER_SECURITY,
    doc="Whether a new certificate may have another distinguished name.")
SSL_ALLOW_SAN_CHANGES = broker_key("ssl.allow.san.changes", Boolean(), False, LOW, effect=LATER_SECURITY,
    doc="Whether a new certificate may lack alternative names of the old one.")
SSL_PROVIDER = broker_key("ssl.provider", String(), None, MEDIUM, PER_BROKER, effect=JAVA,
    doc="The Java security provider for TLS.")
SSL_ENGINE_FACTORY_CLASS = broker_key("ssl.engine.factory.class", Class(), None, LOW, PER_BROKER, effect=JAVA,
    doc="A class that makes TLS engines.")
SSL_KEYMANAGER_ALGORITHM = broker_key("ssl.keymanager.algorithm", String(), "SunX509", MEDIUM, PER_BROKER, effect=JAVA,
    doc="The algorithm of Java's key manager.")
SSL_TRUSTMANAGER_ALGORITHM = broker_key("ssl.trustmanager.algorithm", String(), "PKIX", MEDIUM, PER_BROKER, effect=JAVA,
    doc="The algorithm of Java's trust manager.")
SSL_SECURE_RANDOM_IMPLEMENTATION = broker_key("ssl.secure.random.implementation", String(), None, LOW, PER_BROKER,
    effect=JAVA,
    doc="The generator of random numbers for TLS.")

# SASL.

SASL_ENABLED_MECHANISMS = broker_key("sasl.enabled.mechanisms", List(), ("GSSAPI",), MEDIUM, PER_BROKER,
    effect=LATER_SECURITY,
    doc="The ways to log in that are offered.")
SASL_MECHANISM_INTER_BROKER_PROTOCOL = broker_key("sasl.mechanism.inter.broker.protocol",
    String(), "GSSAPI", MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="The way in which brokers log in to each other.")
SASL_MECHANISM_CONTROLLER_PROTOCOL = broker_key("sasl.mechanism.controller.protocol", String(), "GSSAPI", HIGH,
    effect=LATER_SECURITY,
    doc="The way in which brokers log in to controllers.")
SASL_JAAS_CONFIG = broker_key("sasl.jaas.config", Password(), None, MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="The login of a mechanism, in the form of a line of a JAAS file.")
SASL_SERVER_MAX_RECEIVE_SIZE = broker_key("sasl.server.max.receive.size", Int(), 512 * KIB, MEDIUM,
    effect=LATER_SECURITY,
    doc="The largest message of a login.")
SASL_SERVER_CALLBACK_HANDLER_CLASS = broker_key("sasl.server.callback.handler.class", Class(), None, MEDIUM,
    effect=JAVA,
    doc="A class that checks logins.")
SASL_CLIENT_CALLBACK_HANDLER_CLASS = broker_key("sasl.client.callback.handler.class", Class(), None, MEDIUM,
    effect=JAVA,
    doc="A class that answers a server's questions at login.")
SASL_LOGIN_CALLBACK_HANDLER_CLASS = broker_key("sasl.login.callback.handler.class", Class(), None, MEDIUM, effect=JAVA,
    doc="A class that gets the credentials for a login.")
SASL_LOGIN_CLASS = broker_key("sasl.login.class", Class(), None, MEDIUM, effect=JAVA,
    doc="A class that does the login.")
SASL_LOGIN_CONNECT_TIMEOUT_MS = broker_key("sasl.login.connect.timeout.ms", Int(), None, LOW, effect=LATER_SECURITY,
    doc="How long a connection to the token provider may take.")
SASL_LOGIN_READ_TIMEOUT_MS = broker_key("sasl.login.read.timeout.ms", Int(), None, LOW, effect=LATER_SECURITY,
    doc="How long the token provider may take to answer.")
SASL_LOGIN_RETRY_BACKOFF_MS = broker_key("sasl.login.retry.backoff.ms", Long(), 100, LOW, effect=LATER_SECURITY,
    doc="The first pause before the token provider is asked again.")
SASL_LOGIN_RETRY_BACKOFF_MAX_MS = broker_key("sasl.login.retry.backoff.max.ms", Long(), 10_000, LOW,
    effect=LATER_SECURITY,
    doc="The longest pause before the token provider is asked again.")
SASL_LOGIN_REFRESH_WINDOW_FACTOR = broker_key("sasl.login.refresh.window.factor", Double(), 0.8, MEDIUM, PER_BROKER,
    effect=LATER_SECURITY,
    doc="After this part of its life a credential is renewed.")
SASL_LOGIN_REFRESH_WINDOW_JITTER = broker_key("sasl.login.refresh.window.jitter", Double(), 0.05, MEDIUM, PER_BROKER,
    effect=LATER_SECURITY,
    doc="At most this part of its life is added to that at random.")
SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS = broker_key("sasl.login.refresh.min.period.seconds",
    Short(), 60, MEDIUM, PER_BROKER, effect=LATER_SECURITY,
    doc="A credential is not renewed before it is so old.")
SASL_LOGIN_REFRESH_BUFFER_SECONDS = broker_key("sasl.login.refresh.buffer.seconds", Short(), 300, MEDIUM, PER_BROKER,
    effect=LATER_SECURITY,
    doc="A credential is renewed so long before its end.")

# OAuth.

SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL = broker_key("sasl.oauthbearer.token.endpoint.url", String(), None, MEDIUM,
    effect=LATER_SECURITY,
    doc="Where tokens are fetched.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = broker_key("sasl.oauthbearer.jwks.endpoint.url", String(), None, MEDIUM,
    effect=LATER_SECURITY,
    doc="Where the keys are that tokens are signed with.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = broker_key("sasl.oauthbearer.jwks.endpoint.refresh.ms",
    Long(), HOUR_MS, LOW, effect=LATER_SECURITY,
    doc="How often those keys are fetched anew.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = broker_key("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    Long(), 100, LOW, effect=LATER_SECURITY,
    doc="The first pause before those keys are asked for again.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = broker_key("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    Long(), 10_000, LOW, effect=LATER_SECURITY,
    doc="The longest pause before those keys are asked for again.")
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = broker_key("sasl.oauthbearer.expected.audience", List(), (), HIGH,
    effect=LATER_SECURITY,
    doc="A token must be made out to one of these.")
SASL_OAUTHBEARER_EXPECTED_ISSUER = broker_key("sasl.oauthbearer.expected.issuer", String(), None, HIGH,
    effect=LATER_SECURITY,
    doc="A token must be issued by this one.")
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = broker_key("sasl.oauthbearer.clock.skew.seconds", Int(), 30, LOW,
    effect=LATER_SECURITY,
    doc="How far the issuer's clock may be off.")
SASL_OAUTHBEARER_SCOPE = broker_key("sasl.oauthbearer.scope", String(), None, MEDIUM, effect=LATER_SECURITY,
    doc="The scope that a token is asked for with.")
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME = broker_key("sasl.oauthbearer.scope.claim.name", String(), "scope", LOW,
    effect=LATER_SECURITY,
    doc="The claim that holds a token's scopes.")
SASL_OAUTHBEARER_SUB_CLAIM_NAME = broker_key("sasl.oauthbearer.sub.claim.name", String(), "sub", LOW,
    effect=LATER_SECURITY,
    doc="The claim that holds the name of the user.")
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID = broker_key("sasl.oauthbearer.client.credentials.client.id",
    String(), None, MEDIUM, effect=LATER_SECURITY,
    doc="The id with which a token is asked for.")
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET = broker_key("sasl.oauthbearer.client.credentials.client.secret",
    Password(), None, MEDIUM, effect=LATER_SECURITY,
    doc="The secret with which a token is asked for.")
SASL_OAUTHBEARER_ASSERTION_ALGORITHM = broker_key("sasl.oauthbearer.assertion.algorithm",
    String(one_of=("ES256", "RS256"), fold=True), "RS256", MEDIUM, effect=LATER_SECURITY,
    doc="The algorithm that signs an assertion.")
SASL_OAUTHBEARER_ASSERTION_FILE = broker_key("sasl.oauthbearer.assertion.file", String(), None, MEDIUM,
    effect=LATER_SECURITY,
    doc="A file that holds a ready assertion.")
SASL_OAUTHBEARER_ASSERTION_TEMPLATE_FILE = broker_key("sasl.oauthbearer.assertion.template.file",
    String(), None, MEDIUM, effect=LATER_SECURITY,
    doc="A file with the fixed parts of an assertion.")
SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE = broker_key("sasl.oauthbearer.assertion.private.key.file",
    String(), None, MEDIUM, effect=LATER_SECURITY,
    doc="The file with the key that signs an assertion.")
SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_PASSPHRASE = broker_key("sasl.oauthbearer.assertion.private.key.passphrase",
    Password(), None, MEDIUM, effect=LATER_SECURITY,
    doc="The passphrase of that key.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_AUD = broker_key("sasl.oauthbearer.assertion.claim.aud", String(), None, MEDIUM,
    effect=LATER_SECURITY,
    doc="Whom an assertion is made out to.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_ISS = broker_key("sasl.oauthbearer.assertion.claim.iss", String(), None, MEDIUM,
    effect=LATER_SECURITY,
    doc="Who makes out an assertion.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_SUB = broker_key("sasl.oauthbearer.assertion.claim.sub", String(), None, MEDIUM,
    effect=LATER_SECURITY,
    doc="Whom an assertion is about.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_EXP_SECONDS = broker_key("sasl.oauthbearer.assertion.claim.exp.seconds",
    Int(min=0, max=86_400), 300, LOW, effect=LATER_SECURITY,
    doc="How long an assertion is valid.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_NBF_SECONDS = broker_key("sasl.oauthbearer.assertion.claim.nbf.seconds",
    Int(min=0, max=3600), 60, LOW, effect=LATER_SECURITY,
    doc="How long before its making an assertion is valid already.")
SASL_OAUTHBEARER_ASSERTION_CLAIM_JTI_INCLUDE = broker_key("sasl.oauthbearer.assertion.claim.jti.include",
    Boolean(), False, MEDIUM, effect=LATER_SECURITY,
    doc="Whether an assertion gets an id of its own.")
SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS = broker_key("sasl.oauthbearer.jwt.retriever.class",
    Class(), "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", MEDIUM, effect=JAVA,
    doc="A class that fetches tokens.")
SASL_OAUTHBEARER_JWT_VALIDATOR_CLASS = broker_key("sasl.oauthbearer.jwt.validator.class",
    Class(), "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", MEDIUM, effect=JAVA,
    doc="A class that checks tokens.")

# Kerberos.

SASL_KERBEROS_SERVICE_NAME = broker_key("sasl.kerberos.service.name", String(), None, MEDIUM, PER_BROKER,
    effect=KERBEROS,
    doc="The name of the service in Kerberos.")
SASL_KERBEROS_KINIT_CMD = broker_key("sasl.kerberos.kinit.cmd", String(), "/usr/bin/kinit", MEDIUM, PER_BROKER,
    effect=KERBEROS,
    doc="The path of kinit.")
SASL_KERBEROS_MIN_TIME_BEFORE_RELOGIN = broker_key("sasl.kerberos.min.time.before.relogin",
    Long(), MINUTE_MS, MEDIUM, PER_BROKER, effect=KERBEROS,
    doc="The least time between two logins.")
SASL_KERBEROS_TICKET_RENEW_JITTER = broker_key("sasl.kerberos.ticket.renew.jitter", Double(), 0.05, MEDIUM, PER_BROKER,
    effect=KERBEROS,
    doc="How much chance there is in the time of a renewal.")
SASL_KERBEROS_TICKET_RENEW_WINDOW_FACTOR = broker_key("sasl.kerberos.ticket.renew.window.factor",
    Double(), 0.8, MEDIUM, PER_BROKER, effect=KERBEROS,
    doc="After this part of its life a ticket is renewed.")
SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES = broker_key("sasl.kerberos.principal.to.local.rules",
    List(), ("DEFAULT",), MEDIUM, PER_BROKER, effect=KERBEROS,
    doc="How a principal becomes the name of a user.")

# Delegation tokens.

DELEGATION_TOKEN_SECRET_KEY = broker_key("delegation.token.secret.key", Password(), None, MEDIUM, effect=LATER_SECURITY,
    doc="The secret that all brokers sign delegation tokens with.")
DELEGATION_TOKEN_MAX_LIFETIME_MS = broker_key("delegation.token.max.lifetime.ms", Long(min=1), 7 * DAY_MS, MEDIUM,
    effect=LATER_SECURITY,
    doc="The longest life of a delegation token, renewals included.")
DELEGATION_TOKEN_EXPIRY_TIME_MS = broker_key("delegation.token.expiry.time.ms", Long(min=1), DAY_MS, MEDIUM,
    effect=LATER_SECURITY,
    doc="How long a delegation token is valid before it must be renewed.")
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS = broker_key("delegation.token.expiry.check.interval.ms",
    Long(min=1), HOUR_MS, LOW, effect=LATER_SECURITY,
    doc="How often it is looked for delegation tokens that expired.")
