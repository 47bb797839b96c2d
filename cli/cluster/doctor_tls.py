"""`trioka doctor tls HOST:PORT`: the certificates and versions of a TLS listener, and what is wrong with them.

It checks the certificate chain, the days left, the host names, whether the settings of `--command-config` trust the
chain, and the TLS versions that the listener supports.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from ..client.cluster_client import Kafka
from ..client.settings import Settings, parse_servers
from ..client.time_budget import TimeoutBudget
from ..client.tls_probe import ProbedListener, Verdict, certificate_time_s
from ..options import with_output, with_settings
from ..terminal.failure import Exit, Failure
from ..terminal.output import show
from .findings import COLUMNS, FAILED, OK, WARNING, Finding

DAY_S: Final = 86_400
SOON_DAYS: Final = 30  # a certificate with fewer days left should be replaced now
OLD_VERSIONS: Final = ("TLSv1.0", "TLSv1.1")
SHOWN_NAMES: Final = 10


@click.command("tls")
@click.argument("address", required=False, metavar="[HOST:PORT]")
@with_output
@with_settings
def doctor_tls(settings: Settings, address: str | None, output: str) -> int:
    """Looks at a TLS listener: chain, days left, names, trust, versions. Exit code 10 if something is wrong."""
    host, port = parse_servers(address)[0] if address is not None else settings.bootstrap[0]
    listener = ProbedListener(host, port, settings.properties, TimeoutBudget(settings.timeout_s))
    agreed, chain = listener.handshake()
    findings = [Finding("handshake", OK, f"{listener.address} negotiates {agreed.version} with {agreed.cipher}")]
    findings += certificate_findings(chain, time.time())
    findings += trust_findings(listener.verdict(), host, chain)
    findings += version_findings(listener.offered())
    show([each._asdict() for each in findings], COLUMNS, output, name="check")
    return Exit.UNHEALTHY if any(each.status == FAILED for each in findings) else Exit.OK


def certificate_findings(chain: Sequence[dict[str, Any]], now_s: float) -> Iterator[Finding]:
    """One finding per certificate, the listener's own first."""
    for number, certificate in enumerate(chain):
        what = "certificate" if number == 0 else f"issuer {number}"
        subject = name_text(certificate.get("subject", ()))
        begins = certificate_time_s(certificate["notBefore"])
        days = int((certificate_time_s(certificate["notAfter"]) - now_s) // DAY_S)
        if begins > now_s:
            yield Finding(
                what, FAILED, f"{subject} is not valid before {certificate['notBefore']}", "look at the clock"
            )
        elif days < 0:
            yield Finding(what, FAILED, f"{subject} ended {-days} days ago", "replace the certificate")
        else:
            status = WARNING if days < SOON_DAYS else OK
            then = "replace the certificate soon" if days < SOON_DAYS else None
            yield Finding(what, status, f"{subject} has {days} days left", then)
    if chain:
        names = names_of(chain[0])
        more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
        if names:
            yield Finding("names", OK, f"{', '.join(names[:SHOWN_NAMES])}{more}")
        else:
            then = "issue one with subject alternative names: clients do not look at the common name"
            yield Finding("names", FAILED, "the certificate has no subject alternative names", then)


def broker_findings(kafka: Kafka, settings: Settings, now_s: float) -> Iterator[Finding]:
    """The days left of each broker's certificates, if clients connect by TLS."""
    if not settings.protocol.endswith("SSL"):
        return
    brokers = kafka.cluster().brokers
    for number, broker in enumerate(brokers):
        try:
            with kafka.budget.share(len(brokers) - number + 1):
                _, chain = ProbedListener(broker.host, broker.port, settings.properties, kafka.budget).handshake()
        except Failure:
            continue  # the finding about its listener covers it
        for each in certificate_findings(chain, now_s):
            yield each._replace(found=f"broker {broker.node_id}: {each.found}")


def trust_findings(verdict: Verdict, host: str, chain: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    if verdict.trust is not None:
        is_self_signed = len(chain) == 1 and chain[0].get("subject") == chain[0].get("issuer")
        then = "name the authority by ssl.truststore.location in the file of --command-config"
        if not is_self_signed and chain and len(chain) == 1:
            then += "; if the listener should send an intermediate certificate, it does not"
        yield Finding("trust", FAILED, f"not trusted: {verdict.trust}", then)
        return
    yield Finding("trust", OK, "signed by an authority that is trusted here")
    if verdict.name is None:
        yield Finding("host name", OK, f"the certificate is for '{host}'")
    else:
        then = "name the listener by one of its names, or issue a certificate with this name"
        yield Finding("host name", FAILED, f"the certificate is not for '{host}'", then)


def version_findings(offered: Sequence[str]) -> Iterator[Finding]:
    old = [version for version in offered if version in OLD_VERSIONS]
    if old:
        then = "set ssl.enabled.protocols=TLSv1.2,TLSv1.3"
        yield Finding("versions", FAILED, f"{', '.join(old)} is offered, which is broken", then)
    elif "TLSv1.3" not in offered:
        then = "set ssl.enabled.protocols=TLSv1.2,TLSv1.3"
        yield Finding("versions", WARNING, f"{', '.join(offered) or 'none'}; TLSv1.3 is missing", then)
    else:
        yield Finding("versions", OK, ", ".join(offered))


def names_of(certificate: dict[str, Any]) -> list[str]:
    """The subject alternative names, such as DNS:localhost."""
    return [f"{kind}:{name}" for kind, name in certificate.get("subjectAltName", ())]


def name_text(name: Sequence[Sequence[tuple[str, str]]]) -> str:
    """The common name, or the whole name if it has none."""
    parts = [pair for group in name for pair in group]
    common = next((value for key, value in parts if key == "commonName"), None)
    return common or ", ".join(f"{key}={value}" for key, value in parts) or "a certificate without a name"
