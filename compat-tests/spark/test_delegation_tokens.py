"""Spark's own token provider gets a delegation token of trioka, and its connector reads and writes with it alone.

The provider logs in by the JAAS configuration of the JVM, as on a driver. Executors have none, only the credentials
that the driver sends them: so the configuration is removed before anything is read or written.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from oracle import run_tool
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from support.certificates import authority, signed
from trioka_process import TriokaProcess

from spark.pipelines import SharedJvm, end_jvm
from trioka.cli.client.connection import free_ports
from trioka.protocol.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
ACLS: Final = "org.apache.kafka.tools.AclCommand"
TOKENS: Final = "org.apache.kafka.tools.DelegationTokenCommand"
HOST: Final = "127.0.0.1"
USER, PASSWORD = "alice", "alice-s3cret"
ADMIN, ADMIN_PASSWORD = "admin", "admin-s3cret"
TOPIC: Final = "with-a-token"
CLUSTER: Final = "spark.kafka.clusters.trioka"
JAAS_PROPERTY: Final = "java.security.auth.login.config"
VALUES: Final = [f"v{number}" for number in range(50)]
EXPIRED_TIMEOUTS: Final = {"kafka.default.api.timeout.ms": "20000", "kafka.request.timeout.ms": "10000"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TriokaProcess]:
    """Alice may read and write one topic; tokens are only given over SASL_SSL."""
    folder = tmp_path_factory.mktemp("tokens")
    clients, nodes = free_ports(HOST, 2)
    trusted = authority()
    signed(trusted).write(folder / "server.pem")
    (folder / "authority.pem").write_text(trusted.chain_pem)
    listeners = f"CLIENTS://{HOST}:{clients},NODES://{HOST}:{nodes}"
    known = f'user_{USER}="{PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}"'
    settings = {
        "listeners": f"{listeners},CONTROLLER://{HOST}:0",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,NODES:PLAINTEXT,CLIENTS:SASL_SSL",
        "inter.broker.listener.name": "NODES",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "server.pem",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "plain.sasl.jaas.config": f"{PLAIN_MODULE} required {known};",
        "scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "delegation.token.secret.key": "a key of all nodes",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }
    with TriokaProcess(folder, settings) as process:
        nodes_at = ("--bootstrap-server", f"{HOST}:{nodes}")
        run_tool(TOPICS, *nodes_at, "--create", "--topic", TOPIC, "--partitions", "2")
        rule = ("--add", "--allow-principal", f"User:{USER}", "--operation")
        run_tool(ACLS, *nodes_at, *rule, "Read", "--operation", "Write", "--topic", TOPIC)
        run_tool(ACLS, *nodes_at, *rule, "Read", "--group", "*")
        yield process
    assert "Traceback" not in process.log.read_text()


@pytest.fixture(scope="module")
def spark(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    end_jvm()  # this file sets properties of the JVM
    jvm = SharedJvm(tmp_path_factory.mktemp("warehouse"))
    yield jvm.session()
    jvm.close()


def token_of(spark: SparkSession, broker: TriokaProcess, folder: Path) -> Any:
    """The credentials that Spark's provider gets for a cluster."""
    jvm: Any = spark._jvm
    jaas = folder / "jaas.conf"
    jaas.write_text(f'KafkaClient {{ {PLAIN_MODULE} required username="{USER}" password="{PASSWORD}"; }};\n')
    conf = spark.sparkContext._jsc.sc().conf()
    settings = {
        "auth.bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.token.mechanism": "SCRAM-SHA-512",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.log.parent / "authority.pem"),
        "kafka.sasl.mechanism": "PLAIN",
    }
    for name, value in settings.items():
        conf.set(f"{CLUSTER}.{name}", value)
    jvm.java.lang.System.setProperty(JAAS_PROPERTY, str(jaas))
    try:
        credentials = jvm.org.apache.hadoop.security.Credentials()
        provider = jvm.org.apache.spark.kafka010.KafkaDelegationTokenProvider()
        renew_at = provider.obtainDelegationTokens(jvm.org.apache.hadoop.conf.Configuration(), conf, credentials)
        assert renew_at.isDefined()
    finally:
        jvm.java.lang.System.clearProperty(JAAS_PROPERTY)
        jvm.javax.security.auth.login.Configuration.setConfiguration(None)
    assert credentials.numberOfTokens() == 1
    return credentials


def options_of(broker: TriokaProcess) -> dict[str, str]:
    """Without a login: Spark adds the token, and the protocol of its cluster."""
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(broker.log.parent / "authority.pem"),
    }


@pytest.fixture(scope="module")
def credentials(spark: SparkSession, broker: TriokaProcess, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of the user that runs Spark, from here on."""
    found = token_of(spark, broker, tmp_path_factory.mktemp("jaas"))
    jvm: Any = spark._jvm
    jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addCredentials(found)
    return found


def test_spark_reads_and_writes_with_a_delegation_token(
    spark: SparkSession, broker: TriokaProcess, credentials: Any, tmp_path: Path
) -> None:
    options = options_of(broker)
    rows = spark.createDataFrame([(value,) for value in VALUES], "value string")
    rows.write.format("kafka").options(**options, topic=TOPIC).save()
    read = {**options, "subscribe": TOPIC, "startingOffsets": "earliest"}
    found = spark.read.format("kafka").options(**read).load().selectExpr("cast(value as string)").collect()
    assert sorted(row[0] for row in found) == sorted(VALUES)
    with pytest.raises(Py4JJavaError, match=r"(?i)not authorized|TopicAuthorization"):
        rows.write.format("kafka").options(**options, topic="not-hers").save()
    folder = tmp_path / "stream"
    reader = spark.readStream.format("kafka").options(**read).load().selectExpr("cast(value as string) value")
    writer = reader.writeStream.format("parquet").option("path", str(folder / "table"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    assert spark.read.parquet(str(folder / "table")).count() == len(VALUES)


def test_sparks_token_is_one_of_its_owner_and_ends_when_it_is_expired(
    spark: SparkSession, broker: TriokaProcess, credentials: Any, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={broker.log.parent / 'authority.pem'}\n"
        f'sasl.jaas.config={PLAIN_MODULE} required username="{USER}" password="{PASSWORD}";\n'
    )
    connected = ("--bootstrap-server", broker.bootstrap, "--command-config", config)
    token = credentials.getAllTokens().iterator().next()
    described = ("--describe", "--owner-principal", f"User:{USER}")
    text = run_tool(TOKENS, *connected, *described)
    token_id, hmac = (bytes(each).decode() for each in (token.getIdentifier(), token.getPassword()))
    assert token_id in text and f"User:{USER}" in text
    run_tool(TOKENS, *connected, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in run_tool(TOKENS, *connected, *described)
    options = {**options_of(broker), "subscribe": TOPIC, **EXPIRED_TIMEOUTS}
    with pytest.raises(Py4JJavaError, match=r"(?i)authentication failed"):
        spark.read.format("kafka").options(**options).load().collect()
