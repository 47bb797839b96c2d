"""Errors before a broker answers, and what Kafka's error codes mean to the user of a command.

Each problem has a code, a name, a meaning and a remedy: `trioka explain TRK-2003` prints them. The errors of Kafka's
protocol are declared in `trioka.protocol.errors`, with their meaning; this module adds the remedies of those that users
meet, and the exit code of the command.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from trioka.protocol import errors
from trioka.protocol.errors import KafkaError

from .terminal.failure import KAFKA_CODES_FROM, Exit, Failure


class KnownProblem(NamedTuple):
    code: str
    name: str
    meaning: str
    remedy: str
    exit_code: int = Exit.UNREACHABLE


REFUSED: Final = KnownProblem(
    "TRK-2001",
    "NOBODY_LISTENS",
    "The machine is there, and no process listens on that port.",
    "Start a broker there (trioka dev), or name another with --bootstrap-server or KAFKA_BOOTSTRAP_SERVERS.",
)
NO_SUCH_HOST: Final = KnownProblem(
    "TRK-2002",
    "NO_SUCH_HOST",
    "The name of the host could not be turned into an address.",
    "Look for a typing mistake; inside of containers, use the name that the network of the containers knows.",
)
EXPECTS_TLS: Final = KnownProblem(
    "TRK-2003",
    "EXPECTS_TLS",
    "The listener expects TLS and got plain text.",
    "Put security.protocol=SSL (or SASL_SSL) into a file and name it with --command-config.",
)
SPEAKS_HTTP: Final = KnownProblem(
    "TRK-2004",
    "SPEAKS_HTTP",
    "The port belongs to a web server, such as the console or the metrics of a broker.",
    "Name the port of the Kafka listener; 9092 is the usual one.",
)
TIMED_OUT: Final = KnownProblem(
    "TRK-2005",
    "TIMED_OUT",
    "No response in time: the broker is overloaded, or a firewall drops the packets.",
    "Try a longer --timeout; then look at the broker's log.",
)
NOT_REACHABLE_AS_ADVERTISED: Final = KnownProblem(
    "TRK-2006",
    "ADVERTISED_LISTENER_UNREACHABLE",
    "The bootstrap connection worked, but the address that a broker advertises cannot be reached from here.",
    "Set advertised.listeners of the broker to an address that this machine can reach.",
)
HUNG_UP: Final = KnownProblem(
    "TRK-2007",
    "HUNG_UP",
    "The server closed the connection without a response: the listener may need TLS, a login or a client certificate, "
    "or the server is not Kafka.",
    "See which listeners the broker has, and give security.protocol and the login in a file with --command-config.",
)
NO_TLS_HERE: Final = KnownProblem(
    "TRK-2008",
    "SPEAKS_NO_TLS",
    "security.protocol requires TLS, and the listener uses plain text.",
    "Take security.protocol out of the file of --command-config, or name the port of the TLS listener.",
)
NOT_KAFKA: Final = KnownProblem(
    "TRK-2009",
    "SPEAKS_SOMETHING_ELSE",
    "What came back is not Kafka's protocol.",
    "Name the port of the Kafka listener; 9092 is the usual one.",
)
TOO_OLD: Final = KnownProblem(
    "TRK-2010",
    "NOT_OFFERED",
    "The broker does not offer what the command needs, or only in versions that are too old.",
    "The command line works with Apache Kafka 3.0 and newer, and with every trioka.",
    Exit.FAILED,
)
NOT_TRUSTED: Final = KnownProblem(
    "TRK-2011",
    "CERTIFICATE_NOT_TRUSTED",
    "The certificate of the broker was not signed by an authority that this machine trusts, or is for another host.",
    "Name the authority's certificate by ssl.truststore.location in the file of --command-config, and the broker by a "
    "name that its certificate has: trioka doctor tls HOST:PORT.",
)
CONTROLLER: Final = KnownProblem(
    "TRK-2012",
    "A_CONTROLLER",
    "The listener belongs to a controller of the cluster, which serves brokers and not clients.",
    "Name the port of a broker's listener; 9092 is the usual one.",
)

CERTIFICATE_WANTED: Final = KnownProblem(
    "TRK-2013",
    "CLIENT_CERTIFICATE_REFUSED",
    "The listener requires a client certificate, and got none or one that it does not trust.",
    "Name a key and a certificate by ssl.keystore.location in the file of --command-config.",
    Exit.UNAUTHORISED,
)
TLS_REFUSED: Final = KnownProblem(
    "TRK-2014",
    "TLS_REFUSED",
    "Client and server have no TLS version or cipher suite in common.",
    "See what the listener offers: trioka doctor tls HOST:PORT.",
)

KNOWN_PROBLEMS: Final = {
    trouble.code: trouble
    for trouble in (
        REFUSED,
        NO_SUCH_HOST,
        EXPECTS_TLS,
        SPEAKS_HTTP,
        TIMED_OUT,
        NOT_REACHABLE_AS_ADVERTISED,
        HUNG_UP,
        NO_TLS_HERE,
        NOT_KAFKA,
        TOO_OLD,
        NOT_TRUSTED,
        CONTROLLER,
        CERTIFICATE_WANTED,
        TLS_REFUSED,
    )
}

PASSING: Final = frozenset(
    trouble.code for trouble in (REFUSED, TIMED_OUT, HUNG_UP, NOT_REACHABLE_AS_ADVERTISED)
)  # codes of problems that end when a broker comes back or another one leads

# Remedies for errors of Kafka's protocol that users of the command line meet.
REMEDIES: Final[dict[type[KafkaError], str]] = {
    errors.UnknownTopicOrPartition: "See what there is: trioka topics list. Create it: trioka topics create NAME.",
    errors.TopicAlreadyExists: "Choose another name, or add --if-not-exists.",
    errors.InvalidTopic: "Letters, digits, '.', '_' and '-', at most 249 of them.",
    errors.InvalidReplicationFactor: "There must be at least as many brokers as replicas: --replication-factor 1.",
    errors.InvalidPartitions: "At least one partition; their number can grow and not shrink.",
    errors.InvalidConfig: "trioka explain KEY describes a key and its values.",
    errors.GroupIdNotFound: "See what there is: trioka groups list.",
    errors.NonEmptyGroup: "Stop the members of the group first: trioka groups describe GROUP --members names them.",
    errors.GroupSubscribedToTopic: "Stop the members that read the topic first.",
    errors.CoordinatorNotAvailable: "Wait a moment. If it stays so, __consumer_offsets has no leader, or the broker "
    "has no groups: trioka doctor.",
    errors.NotEnoughReplicas: "Too few replicas are in sync: trioka topics describe --under-replicated-partitions.",
    errors.OffsetOutOfRange: "The records were deleted, or do not exist yet: trioka topics describe NAME -o wide.",
    errors.PolicyViolation: "The operator of the cluster does not allow it.",
    errors.SaslAuthenticationFailed: "Check user name and password in the file of --command-config.",
    errors.IllegalSaslState: "The listener takes no login: set security.protocol to PLAINTEXT or SSL, or name the port "
    "of the SASL listener.",
    errors.UnsupportedSaslMechanism: "Set sasl.mechanism to one that the listener takes.",
    errors.TopicAuthorizationFailed: "Get the permission on the topic (trioka acl add), or log in as another user.",
    errors.GroupAuthorizationFailed: "Get the permission on the group (trioka acl add), or log in as another user.",
    errors.ClusterAuthorizationFailed: "Get the permission on the cluster (trioka acl add), or log in as another user.",
}

UNAUTHORISED: Final = frozenset(
    error
    for error in errors.BY_CODE.values()
    if error.__name__.endswith("AuthorizationFailed") or "Authentication" in error.__name__
)
LOGIN_ERRORS: Final = frozenset(
    {errors.SaslAuthenticationFailed, errors.IllegalSaslState, errors.UnsupportedSaslMechanism}
)
NOT_FOUND: Final = frozenset(
    {errors.UnknownTopicOrPartition, errors.UnknownTopicId, errors.GroupIdNotFound, errors.ResourceNotFound}
)
EXISTS: Final = frozenset({errors.TopicAlreadyExists, errors.DuplicateResource})


def exit_code(error: type[KafkaError]) -> int:
    """The exit code of a command that got this error in a response."""
    for known, code in ((UNAUTHORISED, Exit.UNAUTHORISED), (NOT_FOUND, Exit.NOT_FOUND), (EXISTS, Exit.EXISTS)):
        if error in known:
            return code
    return Exit.FAILED


def label(error: type[KafkaError]) -> str:
    """The label of a code, such as TRK-1003."""
    return f"TRK-{KAFKA_CODES_FROM + error.code:04}"


def from_error_code(code: int, what: str, message: str | None = None, hints: Sequence[str] = ()) -> Failure:
    """The failure for an error code in a response. `what` is the sentence; the broker's own message follows it."""
    error = errors.error_class(code)
    words = (message or "").strip() or (error.__doc__ or "").strip()
    if not hints and error in LOGIN_ERRORS:
        hints = [f"try: {REMEDIES[error]}"]
    sentence = f"{what}: {words}" if words else what
    return Failure(
        sentence.removesuffix("."), exit_code=exit_code(error), code=label(error), name=error.name, hints=hints
    )


def not_found(error: type[KafkaError], what: str, hints: Sequence[str]) -> Failure:
    """The failure for a named object that does not exist."""
    return Failure(what, exit_code=Exit.NOT_FOUND, code=label(error), name=error.name, hints=hints)


def failure_for(trouble: KnownProblem, what: str, hints: Sequence[str] = ()) -> Failure:
    return Failure(
        what,
        exit_code=trouble.exit_code,
        code=trouble.code,
        name=trouble.name,
        hints=[*hints, f"try: {trouble.remedy}"],
    )
