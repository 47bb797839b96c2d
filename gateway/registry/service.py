"""What each request of the registry does. The methods block, and are called from threads.

What can change (a latest version, a list, a level) is read after the topic was read to its end; a schema by its id
never changes, so an id that is known is answered from memory.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from . import changes
from .errors import RegistryError, invalid_version, schema_not_found, subject_not_found
from .formats.parsed import Dependency
from .records import MAX_INT32, SCHEMA_TYPES, BadRecord, StoredSchema, decode_reference, guid_of
from .register import SchemaRequest, check_compatibility, dependencies_of, lookup, parsed_version, register
from .state import LATEST, Place, RegistryState
from .store import SchemaStore
from .subjects import ALL_CONTEXTS, DEFAULT_CONTEXT, checked_subject, context_of, parse_subject

T = TypeVar("T")
MAX_DIGITS: Final = 10  # of an id
NOT_A_BODY: Final = "The body must be a JSON object."


class SchemaContent(NamedTuple):
    """A schema without its place: what values are written and read by."""

    schema_type: str
    text: str
    dependencies: tuple[Dependency, ...]


class RegistryService:
    def __init__(self, store: SchemaStore) -> None:
        self._store = store

    def _read(self, look: Callable[[RegistryState], T]) -> T:
        self._store.catch_up()
        return self._store.read(look)

    def not_ready(self) -> str | None:
        return self._store.not_ready()

    def wait_until_ready(self) -> None:
        self._store.read(lambda state: None)

    # -- subjects ------------------------------------------------------------------------------------------------------

    def subjects(self, query: "Query") -> list[str]:
        prefix = query.text("subjectPrefix", ALL_CONTEXTS)
        only_deleted = query.flag("deletedOnly")
        deleted = query.flag("deleted")
        found = self._read(lambda state: state.subjects(deleted=deleted, only_deleted=only_deleted))
        return query.page([each for each in found if has_prefix(each, prefix)])

    def versions(self, subject: str, query: "Query") -> list[int]:
        subject = checked_subject(subject)
        deleted, only_deleted = query.flag("deleted"), query.flag("deletedOnly")
        versions = self._read(lambda state: state.versions(subject))
        found = [
            each.version
            for each in versions.values()
            if (each.is_deleted if only_deleted else deleted or not each.is_deleted)
        ]
        if not found:
            raise subject_not_found(subject)
        return query.page(found)

    def version(self, subject: str, version: str, query: "Query") -> dict[str, Any]:
        schema, text = self._version(subject, version, query)
        return described(schema, text)

    def version_text(self, subject: str, version: str, query: "Query") -> str:
        return self._version(subject, version, query)[1]

    def _version(self, subject: str, version: str, query: "Query") -> tuple[StoredSchema, str]:
        subject, number = checked_subject(subject), version_of(version)
        deleted, form = query.flag("deleted"), query.text("format")

        def look(state: RegistryState) -> tuple[StoredSchema, str]:
            schema = state.version(subject, number, deleted=deleted)
            return schema, formatted(state, schema, form)

        return self._read(look)

    def referenced_by(self, subject: str, version: str, query: "Query") -> list[int]:
        subject, number = checked_subject(subject), version_of(version)
        deleted = query.flag("deleted")

        def look(state: RegistryState) -> list[int]:
            schema = state.version(subject, number, deleted=True)
            place = Place(schema.subject, schema.version)
            return [each.id for each in state.referrers(place, deleted=deleted)]

        return query.page(list(dict.fromkeys(self._read(look))))

    def register_request(self, subject: str, request: SchemaRequest) -> int:
        """The id of the schema."""
        return self._store.write(lambda state: register(state, subject, request)).schema.id

    def register(self, subject: str, query: "Query", body: object) -> dict[str, Any]:
        subject, request, normalize = checked_subject(subject), schema_request(body), query.flag("normalize")
        done = self._store.write(lambda state: register(state, subject, request, normalize=normalize))
        found = described(done.schema, "")
        # Not the text: clients keep what a response has in the place of what they sent, which may be a descriptor.
        return {name: found[name] for name in ("id", "version", "guid") if name in found}

    def lookup(self, subject: str, query: "Query", body: object) -> dict[str, Any]:
        subject, request = checked_subject(subject), schema_request(body)
        normalize, deleted, form = query.flag("normalize"), query.flag("deleted"), query.text("format")

        def look(state: RegistryState) -> dict[str, Any]:
            is_normalized = normalize or state.config_in_scope(subject).get("normalize") is True
            schema = lookup(state, subject, request, normalize=is_normalized, deleted=deleted)
            return described(schema, formatted(state, schema, form))

        return self._read(look)

    def delete_subject(self, subject: str, query: "Query") -> Any:
        subject, permanent = checked_subject(subject), query.flag("permanent")
        return self._store.write(lambda state: changes.delete_subject(state, subject, permanent=permanent)).body

    def delete_version(self, subject: str, version: str, query: "Query") -> Any:
        subject, number, permanent = checked_subject(subject), version_of(version), query.flag("permanent")
        return self._store.write(lambda state: changes.delete_version(state, subject, number, permanent=permanent)).body

    # -- schemas by id -------------------------------------------------------------------------------------------------

    def by_id(self, number: str, query: "Query") -> dict[str, Any]:
        schema, text = self._by_id(number, query)
        found = described(schema, text)
        del found["id"]
        if query.flag("fetchMaxId"):
            context = context_of(schema.subject)
            found["maxId"] = self._store.read(lambda state: state.max_id(context))
        return found

    def content_of_id(self, number: int) -> SchemaContent:
        """A schema of the default context with all that it refers to."""

        def look(state: RegistryState) -> SchemaContent:
            found = state.by_id(DEFAULT_CONTEXT, number)
            if not found:
                raise schema_not_found(number)
            schema = found[0]
            dependencies = dependencies_of(state, schema.subject, schema.references)
            return SchemaContent(schema.schema_type, schema.text, tuple(dependencies))

        return self._known_or_read(look)

    def text_by_id(self, number: str, query: "Query") -> str:
        return self._by_id(number, query)[1]

    def _by_id(self, number: str, query: "Query") -> tuple[StoredSchema, str]:
        form = query.text("format")

        def look(state: RegistryState) -> tuple[StoredSchema, str]:
            schema = self._holders(state, number, query, deleted=True)[0]
            return schema, formatted(state, schema, form)

        return self._known_or_read(look)

    def _known_or_read(self, look: Callable[[RegistryState], T]) -> T:
        try:
            return self._store.read(look)
        except RegistryError:
            return self._read(look)

    def _holders(self, state: RegistryState, number: str, query: "Query", *, deleted: bool) -> list[StoredSchema]:
        if not (number.isascii() and number.isdecimal()) or len(number) > MAX_DIGITS or int(number) > MAX_INT32:
            raise schema_not_found(number[:50])
        subject = query.text("subject")
        context = parse_subject(subject).context if subject else DEFAULT_CONTEXT
        found = state.by_id(context, int(number))
        if subject and not parse_subject(subject).is_context:
            named = [each for each in found if each.subject == subject]
            found = named or found
        if not found:
            raise schema_not_found(number)
        return [each for each in found if deleted or not each.is_deleted]

    def subjects_of_id(self, number: str, query: "Query") -> list[str]:
        deleted = query.flag("deleted")
        found = self._read(lambda state: self._holders(state, number, query, deleted=deleted))
        return query.page(sorted({each.subject for each in found}))

    def versions_of_id(self, number: str, query: "Query") -> list[dict[str, Any]]:
        deleted = query.flag("deleted")
        found = self._read(lambda state: self._holders(state, number, query, deleted=deleted))
        return query.page([{"subject": each.subject, "version": each.version} for each in found])

    def schemas(self, query: "Query") -> list[dict[str, Any]]:
        prefix, deleted, latest = (
            query.text("subjectPrefix", ALL_CONTEXTS),
            query.flag("deleted"),
            query.flag("latestOnly"),
        )

        def look(state: RegistryState) -> list[StoredSchema]:
            found = [each for each in state.all_schemas() if deleted or not each.is_deleted]
            if latest:
                found = list({each.subject: each for each in found}.values())
            return [each for each in found if has_prefix(each.subject, prefix)]

        return [described(each, each.text) for each in query.page(self._read(look))]

    def schema_types(self, query: "Query") -> list[str]:
        return list(SCHEMA_TYPES)

    # -- compatibility, levels, modes, contexts ------------------------------------------------------------------------

    def compatibility(self, subject: str, version: str | None, query: "Query", body: object) -> dict[str, Any]:
        """Of one version, or with None of those that the level names."""
        subject, request, normalize = checked_subject(subject), schema_request(body), query.flag("normalize")
        number = None if version is None else version_of(version)

        def look(state: RegistryState) -> list[str]:
            versions = state.live_versions(subject)
            if number is not None and (versions or number != LATEST):
                versions = [state.version(subject, number)]
            return check_compatibility(state, subject, request, versions, normalize=normalize)

        messages = self._read(look)
        found: dict[str, Any] = {"is_compatible": not messages}
        if query.flag("verbose"):
            found["messages"] = messages
        return found

    def get_config(self, subject: str | None, query: "Query") -> Mapping[str, Any]:
        scope, is_default = _scope(subject), query.flag("defaultToGlobal")
        return self._read(
            lambda state: changes.config_body(changes.get_config(state, scope, default_to_global=is_default))
        )

    def set_config(self, subject: str | None, body: object) -> Any:
        scope, request = _scope(subject), _object(body)
        return self._store.write(lambda state: changes.set_config(state, scope, request)).body

    def delete_config(self, subject: str | None) -> Any:
        scope = _scope(subject)
        return self._store.write(lambda state: changes.delete_config(state, scope)).body

    def get_mode(self, subject: str | None, query: "Query") -> dict[str, str]:
        scope, is_default = _scope(subject), query.flag("defaultToGlobal")
        return {"mode": self._read(lambda state: changes.get_mode(state, scope, default_to_global=is_default))}

    def set_mode(self, subject: str | None, query: "Query", body: object) -> Any:
        scope, mode, force = _scope(subject), _object(body).get("mode"), query.flag("force")
        return self._store.write(lambda state: changes.set_mode(state, scope, mode, force=force)).body

    def delete_mode(self, subject: str | None) -> Any:
        scope = _scope(subject)
        return self._store.write(lambda state: changes.delete_mode(state, scope)).body

    def contexts(self, query: "Query") -> list[str]:
        return query.page(self._read(lambda state: state.contexts()))


class Query:
    """The parameters of a request's address."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def flag(self, name: str) -> bool:
        return self._values.get(name, "").lower() == "true"

    def page(self, found: list[T]) -> list[T]:
        start, limit = self._number("offset", 0), self._number("limit", -1)
        return found[max(start, 0) :] if limit < 0 else found[max(start, 0) :][:limit]

    def _number(self, name: str, default: int) -> int:
        text = self._values.get(name, "")
        if not text:
            return default
        if len(text) > 10 or not text.removeprefix("-").isdecimal():
            raise RegistryError(400, f"The parameter {name} must be a whole number.")
        return int(text)


def has_prefix(subject: str, prefix: str) -> bool:
    if prefix.startswith(ALL_CONTEXTS):
        return parse_subject(subject).name.startswith(prefix.removeprefix(ALL_CONTEXTS))
    wanted, found = parse_subject(prefix), parse_subject(subject)
    return wanted.context == found.context and found.name.startswith(wanted.name)


def version_of(text: str) -> int:
    if text in ("latest", "-1"):
        return LATEST
    if not (text.isascii() and text.isdecimal()) or len(text) > 10 or not 1 <= int(text) <= MAX_INT32:
        raise invalid_version(text[:50])
    return int(text)


def _scope(subject: str | None) -> str | None:
    return None if subject is None else checked_subject(subject, may_be_context=True)


def _object(body: object) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise RegistryError(422, NOT_A_BODY)
    return body


def schema_request(body: object) -> SchemaRequest:
    """The body of a register, a lookup or a test."""
    found = _object(body)
    text, kind = found.get("schema"), found.get("schemaType") or "AVRO"
    references, metadata = found.get("references") or [], found.get("metadata")
    if not isinstance(text, str):
        raise RegistryError(42201, "The schema is missing: the field 'schema' must be a string.")
    if not isinstance(kind, str):
        raise RegistryError(42201, "The field 'schemaType' must be AVRO, PROTOBUF or JSON.")
    if found.get("ruleSet") is not None:
        raise RegistryError(42210, "Rule sets are not supported.")
    if not isinstance(references, list) or not isinstance(metadata, dict | None):
        raise RegistryError(42201, "The field 'references' must be a list, and 'metadata' an object.")
    try:
        decoded = tuple(decode_reference(each) for each in references)
    except BadRecord as error:
        raise RegistryError(42201, f"A reference is not valid: {error}.") from None
    return SchemaRequest(
        text,
        kind,
        decoded,
        metadata,
        _optional_number(found.get("version"), "version", 1),
        _optional_number(found.get("id"), "id", 0),
    )


def _optional_number(value: object, name: str, least: int) -> int | None:
    if value is None or value == -1 or (name == "version" and value == 0):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_INT32:
        raise RegistryError(42201, f"The field '{name}' must be a whole number from {least} to {MAX_INT32}.")
    return value


def formatted(state: RegistryState, schema: StoredSchema, form: str) -> str:
    return schema.text if not form else parsed_version(state, schema).formatted(form)


def described(schema: StoredSchema, text: str) -> dict[str, Any]:
    """A version in a response."""
    found: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    guid = guid_of(schema)
    if guid is not None:
        found["guid"] = guid
    found["schemaType"] = schema.schema_type
    if schema.references:
        found["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        found["metadata"] = schema.metadata
    if schema.unknown.get("ruleSet") is not None:
        found["ruleSet"] = schema.unknown["ruleSet"]
    found["schema"] = text
    if schema.is_deleted:
        found["deleted"] = True
    return found
