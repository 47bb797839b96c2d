"""Keys of the validation of schema ids, under the names of Confluent Server. Kafka does not have them, so they are
hidden: DescribeConfigs returns them only if they are set.
"""

from typing import Final
from urllib.parse import urlsplit

from .key import HIGH, broker_key, topic_key
from .values import Boolean, List, Password, String

STRATEGIES: Final = "io.confluent.kafka.serializers.subject."
TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = (
    f"{STRATEGIES}{name}NameStrategy" for name in ("Topic", "Record", "TopicRecord")
)


def _is_registry(text: str) -> str | None:
    found = urlsplit(text)
    if found.scheme in ("http", "https") and found.hostname and not found.username and not found.query:
        return None
    return "must be an address such as http://localhost:8082, without a login in it"


# fmt: off

SCHEMA_REGISTRY_URL = broker_key("confluent.schema.registry.url", List(check=_is_registry), (), HIGH, hidden=True,
    doc="Addresses of a schema registry, comma-separated; the first that answers is used. Topics with "
        "`confluent.value.schema.validation` or `confluent.key.schema.validation` need it.")
SCHEMA_REGISTRY_USER_INFO = broker_key("confluent.basic.auth.user.info", Password(), None, HIGH, hidden=True,
    doc="The broker's own login at the schema registry, as name:password.")
KEY_SCHEMA_VALIDATION = topic_key("confluent.key.schema.validation", Boolean(), False, hidden=True,
    doc="Whether keys must begin with the id of a schema that is registered for them; null is accepted.")
VALUE_SCHEMA_VALIDATION = topic_key("confluent.value.schema.validation", Boolean(), False, hidden=True,
    doc="Whether values must begin with the id of a schema that is registered for them; tombstones are accepted.")
KEY_SUBJECT_NAME_STRATEGY = topic_key("confluent.key.subject.name.strategy",
    String(one_of=(TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)), TOPIC_NAME, hidden=True,
    doc="Under which subject the schema of a key must be registered: TopicNameStrategy requires `<topic>-key`, "
        "TopicRecordNameStrategy a subject that begins with `<topic>-`, RecordNameStrategy any.")
VALUE_SUBJECT_NAME_STRATEGY = topic_key("confluent.value.subject.name.strategy",
    String(one_of=(TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)), TOPIC_NAME, hidden=True,
    doc="Under which subject the schema of a value must be registered: TopicNameStrategy requires `<topic>-value`, "
        "TopicRecordNameStrategy a subject that begins with `<topic>-`, RecordNameStrategy any.")
