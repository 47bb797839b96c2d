"""`trioka gateway`: gRPC, REST and the schema registry in front of any Kafka, in a process of its own.

Its settings come from a properties file and `--override`, the cluster from the options of every command. This module
is imported only for this command, and so is the gateway with its libraries (`trioka[gateway]`).
"""

import logging
import os
import time
from collections.abc import Mapping
from typing import Any, Final

import click

from trioka import __version__
from trioka.gateway.cluster_access import ClusterAccess, Login
from trioka.gateway.process.http import CannotListen
from trioka.gateway.process.run import Ready, run
from trioka.gateway.settings import (
    CLIENT_RACK,
    GRPC_LISTENER,
    HTTP_LISTENER,
    METRICS_LISTENER,
    REGISTRY,
    Settings,
    SettingsError,
)

from .client.settings import Settings as ClusterSettings
from .node.flags import DEFAULT_LOG_LEVEL, JSON, LOG_FORMATS, LOG_LEVELS
from .node.log_lines import in_log_format, set_up_logging
from .node.server import say
from .options import with_settings
from .terminal.failure import CannotStart, Exit, Failure

# The C core of grpc logs to standard error by itself, and reads this when the first server is made.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

lifecycle = logging.getLogger("trioka.lifecycle")

LISTENERS: Final = ((GRPC_LISTENER, "grpc"), (HTTP_LISTENER, "http"), (METRICS_LISTENER, "metrics"))


@click.command("gateway")
@click.argument("file", required=False, metavar="[gateway.properties]")
@with_settings
@click.option("--grpc", metavar="HOST:PORT|off", help=f"{GRPC_LISTENER}; default 127.0.0.1:50051")
@click.option("--http", metavar="HOST:PORT|off", help=f"{HTTP_LISTENER}; default 127.0.0.1:8082")
@click.option("--metrics", metavar="HOST:PORT|off", help=f"{METRICS_LISTENER}; default 127.0.0.1:9464")
@click.option("--registry", is_flag=True, help="with the schema registry, at the address of --http")
@click.option("--override", multiple=True, metavar="KEY=VALUE", help="instead of the file's value; may be repeated")
@click.option(
    "--log-format", type=click.Choice(LOG_FORMATS), default="auto", metavar="FORMAT", help="auto, human, json"
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default=DEFAULT_LOG_LEVEL,
    metavar="LEVEL",
    help=f"default {DEFAULT_LOG_LEVEL}",
)
def gateway(settings: ClusterSettings, **options: Any) -> None:
    """gRPC, REST and a schema registry in front of any Kafka."""
    in_log_format(lambda given: _run(settings, given))(options)


def _run(settings: ClusterSettings, options: Mapping[str, Any]) -> None:
    started = time.perf_counter()
    set_up_logging(options["log_format"], options["log_level"])
    given = _given(options["file"], options["override"])
    given |= {key: value for key, name in LISTENERS if (value := options[name]) is not None}
    if options["registry"]:
        given[REGISTRY] = "true"
    report = _log_ready if options["log_format"] == JSON else _report
    try:
        checked = Settings(given)
        access = access_of(settings, rack=checked.text(CLIENT_RACK) or "")
        run(checked, access, lambda ready: report(ready, access, time.perf_counter() - started))
    except (SettingsError, CannotListen) as error:
        raise CannotStart(str(error).removesuffix(".")) from None


def _given(file: str | None, override: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    if file is not None:
        from .config_reference import read_client_properties

        found |= read_client_properties(file)
    for text in override:
        name, mark, value = text.partition("=")
        if not mark or not name:
            raise Failure(f"--override {text} must be KEY=VALUE", exit_code=Exit.USAGE)
        found[name.strip()] = value.strip()
    return found


def access_of(settings: ClusterSettings, *, rack: str = "") -> ClusterAccess:
    """The cluster of a command's options, as the gateway takes it."""
    login = settings.login()
    librdkafka: Mapping[str, Any] = {}
    if settings.protocol.endswith("SSL"):
        from .client.tls import librdkafka_tls

        librdkafka = librdkafka_tls(settings.properties)
    return ClusterAccess(
        servers=settings.bootstrap,
        protocol=settings.protocol,
        tls=settings.tls(),
        librdkafka_tls=librdkafka,
        login=None
        if login is None
        else Login(mechanism=login.mechanism, username=login.username, password=login.password),
        mechanism="PLAIN" if login is None else login.mechanism,
        rack=rack,
    )


def _log_ready(ready: Ready, access: ClusterAccess, seconds: float) -> None:
    lifecycle.info(
        "the gateway is ready in %.2f s: cluster %s, gRPC %s, HTTP %s, metrics %s",
        seconds,
        access.bootstrap_servers,
        ready.grpc,
        ready.http,
        ready.metrics,
    )


def _report(ready: Ready, access: ClusterAccess, seconds: float) -> None:
    lines = [
        f"trioka {__version__} gateway · ready in {seconds:.2f} s · cluster {access.bootstrap_servers} · Ctrl-C stops"
    ]
    scheme = "https" if ready.is_tls else "http"
    if ready.grpc is not None:
        lines.append(
            f"  gRPC     {ready.grpc!s:<33}{'TLS' if ready.is_tls else 'plaintext'}, with reflection and health"
        )
    if ready.http is not None:
        lines.append(f"  HTTP     {scheme}://{ready.http}")
    if ready.metrics is not None:
        lines.append(f"  Metrics  {f'http://{ready.metrics}/metrics':<33}health /readyz")
    say("\n".join(lines) + "\n")
