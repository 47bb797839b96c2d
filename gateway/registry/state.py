"""What the records of `_schemas` say: schemas by subject and by id, levels, modes, contexts.

`RegistryState.replay` is the only writer, on a start as after an own write. Requests look things up here.

- A soft-deleted version is found by its id and, with `deleted=true`, by its version. A DELETE_SUBJECT record deletes
  all versions up to its own.
- A tombstone removes a version for good; its id is removed with the last version that has it.
- An id is never given twice, as long as a record that had it is in the topic.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from .errors import subject_not_found, version_not_found
from .records import (
    CLEAR_SUBJECT,
    CONFIG,
    CONTEXT,
    DELETE_SUBJECT,
    MODE,
    SCHEMA,
    BadRecord,
    JsonObject,
    Key,
    Reference,
    StoredSchema,
    decode_key,
    decode_schema,
    load,
)
from .subjects import DEFAULT_CONTEXT, Subject, context_of, parse_subject, qualified

DEFAULT_LEVEL: Final = "BACKWARD"
READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
LEVELS: Final = (
    "NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)  # fmt: skip
LATEST: Final = -1

Versions = Mapping[int, StoredSchema]
NO_VERSIONS: Final[Versions] = MappingProxyType({})


class Place(NamedTuple):
    subject: str
    version: int


class Content(NamedTuple):
    """What makes two schemas the same: then they share an id."""

    context: str
    schema_type: str
    text: str
    references: tuple[Reference, ...]
    metadata: str


def content_of(schema: StoredSchema) -> Content:
    metadata = "" if schema.metadata is None else repr(schema.metadata)
    return Content(context_of(schema.subject), schema.schema_type, schema.text, schema.references, metadata)


class RegistryState:
    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._places: dict[tuple[str, int], dict[Place, None]] = {}  # by context and id, in the order of the topic
        self._ids: dict[Content, int] = {}
        self._referrers: dict[Place, set[Place]] = defaultdict(set)
        self._configs: dict[str | None, JsonObject] = {}
        self._modes: dict[str | None, str] = {}
        self._contexts: set[str] = {DEFAULT_CONTEXT}
        self._max_ids: dict[str, int] = defaultdict(int)
        self.schema_count = 0

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record. Raises BadRecord, and changes nothing, for one that is none of the registry's."""
        if key is None:
            raise BadRecord("a record without a key")
        decoded = decode_key(key)
        value = value or None  # Karapace writes an empty value where Confluent's registry writes none
        if decoded.keytype == SCHEMA:
            self._replay_schema(decoded, value)
        elif decoded.keytype == CONFIG:
            self._replay_config(decoded.subject, value)
        elif decoded.keytype == MODE:
            self._replay_mode(decoded.subject, value)
        elif decoded.keytype == CONTEXT and decoded.subject is not None:
            (self._contexts.add if value is not None else self._contexts.discard)(decoded.subject)
        elif decoded.keytype == DELETE_SUBJECT and value is not None and decoded.subject is not None:
            version = load(value).get("version")
            if not isinstance(version, int):
                raise BadRecord("a deleted subject without a version")
            self._replay_delete_subject(decoded.subject, version)
        elif decoded.keytype == CLEAR_SUBJECT and value is not None:
            self._replay_clear_subject(decoded.subject)

    def _replay_schema(self, key: Key, value: bytes | None) -> None:
        assert key.subject is not None
        if value is None:
            self._remove(Place(key.subject, key.version))
            return
        schema = decode_schema(value)
        if (schema.subject, schema.version) != (key.subject, key.version):
            raise BadRecord(f"the key names {key.subject} {key.version}, the value another version")
        self._put(schema)

    def _put(self, schema: StoredSchema) -> None:
        place, context = Place(schema.subject, schema.version), context_of(schema.subject)
        self._remove(place)
        self._subjects.setdefault(schema.subject, {})[schema.version] = schema
        self.schema_count += 1
        self._places.setdefault((context, schema.id), {})[place] = None
        self._ids.setdefault(content_of(schema), schema.id)
        self._max_ids[context] = max(self._max_ids[context], schema.id)
        self._contexts.add(context)
        for each in schema.references:
            self._referrers[Place(qualified(each.subject, schema.subject), each.version)].add(place)

    def _remove(self, place: Place) -> None:
        versions = self._subjects.get(place.subject, {})
        schema = versions.pop(place.version, None)
        if schema is None:
            return
        self.schema_count -= 1
        if not versions:
            del self._subjects[place.subject]
        entry = context_of(place.subject), schema.id
        places = self._places[entry]
        del places[place]
        if not places:
            del self._places[entry]
            if self._ids.get(content_of(schema)) == schema.id:
                del self._ids[content_of(schema)]
        for each in schema.references:
            target = Place(qualified(each.subject, place.subject), each.version)
            self._referrers[target].discard(place)
            if not self._referrers[target]:
                del self._referrers[target]

    def _replay_delete_subject(self, subject: str, version: int) -> None:
        versions = self._subjects.get(subject, {})
        for each in versions.values():
            if each.version <= version and not each.is_deleted:
                versions[each.version] = replace(each, is_deleted=True)

    def _replay_clear_subject(self, subject: str | None) -> None:
        for each in self.subjects_in(subject):
            for schema in tuple(self.versions(each).values()):
                if schema.is_deleted:
                    self._remove(Place(schema.subject, schema.version))

    def _replay_config(self, subject: str | None, value: bytes | None) -> None:
        if value is None:
            self._configs.pop(subject, None)
            return
        config = {name: each for name, each in load(value).items() if name not in ("subject", "offset", "ts")}
        if config.get("compatibilityLevel", DEFAULT_LEVEL) not in LEVELS:
            raise BadRecord("a compatibility level that is none")
        self._configs[subject] = config

    def _replay_mode(self, subject: str | None, value: bytes | None) -> None:
        if value is None:
            self._modes.pop(subject, None)
            return
        mode = load(value).get("mode")
        if not isinstance(mode, str):
            raise BadRecord("a mode that is no string")
        self._modes[subject] = mode

    # -- schemas -------------------------------------------------------------------------------------------------------

    def versions(self, subject: str) -> Versions:
        """All versions, soft-deleted ones included, in their order."""
        found = self._subjects.get(subject)
        return NO_VERSIONS if found is None else dict(sorted(found.items()))

    def live_versions(self, subject: str) -> list[StoredSchema]:
        return [each for each in self.versions(subject).values() if not each.is_deleted]

    def version(self, subject: str, version: int, *, deleted: bool = False) -> StoredSchema:
        """A version or the latest one; raises SUBJECT_NOT_FOUND and VERSION_NOT_FOUND."""
        found = [each for each in self.versions(subject).values() if deleted or not each.is_deleted]
        if not found:
            raise subject_not_found(subject)
        if version == LATEST:
            return found[-1]
        schema = next((each for each in found if each.version == version), None)
        if schema is None:
            raise version_not_found(version)
        return schema

    def subjects(self, *, deleted: bool = False, only_deleted: bool = False) -> list[str]:
        """Names of subjects with a live version; `deleted`: with any; `only_deleted`: with soft-deleted ones only."""
        found = []
        for name in sorted(self._subjects):
            is_live = any(not each.is_deleted for each in self._subjects[name].values())
            if (not is_live) if only_deleted else (is_live or deleted):
                found.append(name)
        return found

    def subjects_in(self, subject: str | None) -> list[str]:
        """The subject itself, or those of a context, or all; soft-deleted ones included."""
        if subject is None:
            return sorted(self._subjects)
        parsed = parse_subject(subject)
        if parsed.is_context:
            return [each for each in sorted(self._subjects) if context_of(each) == parsed.context]
        return [subject] if subject in self._subjects else []

    def by_id(self, context: str, number: int) -> list[StoredSchema]:
        """All versions with this id; live ones first."""
        places = self._places.get((context, number), {})
        found = [self._subjects[each.subject][each.version] for each in places]
        return sorted(found, key=lambda each: each.is_deleted)

    def id_of(self, content: Content) -> int | None:
        return self._ids.get(content)

    def next_id(self, context: str) -> int:
        return self._max_ids[context] + 1 if context in self._max_ids else 1

    def max_id(self, context: str) -> int:
        return self._max_ids.get(context, 0)

    def referrers(self, place: Place, *, deleted: bool = False) -> list[StoredSchema]:
        found = (self._subjects[each.subject][each.version] for each in self._referrers.get(place, ()))
        return sorted((each for each in found if deleted or not each.is_deleted), key=lambda each: each.id)

    def all_schemas(self) -> Iterator[StoredSchema]:
        for subject in sorted(self._subjects):
            yield from self.versions(subject).values()

    def contexts(self) -> list[str]:
        return sorted(self._contexts)

    def schema_ids(self, context: str = DEFAULT_CONTEXT) -> Iterable[int]:
        return (number for name, number in self._places if name == context)

    # -- levels and modes ----------------------------------------------------------------------------------------------

    def config(self, subject: str | None) -> JsonObject | None:
        """The own configuration of a subject, of a context, or of all (None)."""
        return self._configs.get(subject)

    def config_in_scope(self, subject: str | None) -> JsonObject:
        """The configuration that holds: own fields first, then those of the context, then those of all subjects."""
        found: dict[str, Any] = {"compatibilityLevel": DEFAULT_LEVEL}
        for scope in reversed(_scopes(subject)):
            found |= self._configs.get(scope, {})
        return found

    def mode(self, subject: str | None) -> str | None:
        return self._modes.get(subject)

    def mode_in_scope(self, subject: str | None) -> str:
        if self._modes.get(None) == READONLY_OVERRIDE:
            return READONLY_OVERRIDE
        return next((self._modes[each] for each in _scopes(subject) if each in self._modes), READWRITE)


def _scopes(subject: str | None) -> list[str | None]:
    """Where a setting is looked for, in this order."""
    if subject is None:
        return [None]
    parsed = parse_subject(subject)
    if parsed.context == DEFAULT_CONTEXT:
        return [subject, None]
    return list(dict.fromkeys([subject, str(Subject(parsed.context, "")), None]))
