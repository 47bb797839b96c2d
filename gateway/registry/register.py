"""Registering a schema, looking one up, and testing its compatibility: pure decisions over the state.

A schema that is registered gets, in this order: the version of the subject that is the same; the id of a schema of the
context that is the same; the next id of the context. Same means: type, text, references and metadata, or within a
subject the format's own idea of identity.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from .errors import (
    Incompatible,
    InvalidSchema,
    RegistryError,
    not_permitted,
    schema_not_found,
    subject_not_found,
)
from .formats.parse import parse
from .formats.parsed import Dependency, ParsedSchema
from .records import AVRO, MAX_INT32, JsonObject, Record, Reference, StoredSchema, context_record, schema_record
from .records import schema_tombstone as tombstone
from .state import IMPORT, READONLY, READONLY_OVERRIDE, READWRITE, Content, Place, RegistryState, content_of
from .subjects import DEFAULT_CONTEXT, context_of, qualified

MAX_REFERENCES: Final = 1000  # of one schema, those of references included
MAX_SCHEMAS: Final = 500_000  # versions in memory
MAX_VERSIONS: Final = 10_000  # of one subject: a transitive level compares with each
MAX_RECORD_BYTES: Final = 1_000_000  # a little below the default of max.message.bytes


class SchemaRequest(NamedTuple):
    text: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = None
    version: int | None = None  # in IMPORT mode
    id: int | None = None  # in IMPORT mode


class Registered(NamedTuple):
    """What is, or becomes, registered. No records: it was there."""

    schema: StoredSchema
    records: tuple[Record, ...] = ()


def parsed(state: RegistryState, subject: str, request: SchemaRequest, *, normalize: bool = False) -> ParsedSchema:
    """The schema of a request. Raises InvalidSchema."""
    dependencies = dependencies_of(state, subject, request.references)
    made = parse(request.schema_type, request.text, dependencies)
    return parse(request.schema_type, made.normalized(), dependencies) if normalize else made


def parsed_version(state: RegistryState, schema: StoredSchema) -> ParsedSchema:
    return parsed(state, schema.subject, SchemaRequest(schema.text, schema.schema_type, schema.references))


class _Open(NamedTuple):
    """A schema whose references are being followed."""

    dependency: Dependency | None  # None for the schema of the request
    place: Place
    left: Iterator[Reference]


def dependencies_of(state: RegistryState, subject: str, references: Iterable[Reference]) -> list[Dependency]:
    """All schemas that are referred to, each after those that it needs itself. Chains are longer than the interpreter
    lets functions call themselves."""
    found: dict[str, Dependency] = {}
    stack = [_Open(None, Place(subject, 0), iter(references))]
    open_places: set[Place] = set()
    while stack:
        parent = stack[-1]
        reference = next(parent.left, None)
        if reference is None:
            stack.pop()
            open_places.discard(parent.place)
            if parent.dependency is not None:
                found[parent.dependency.name] = parent.dependency
            continue
        place = Place(qualified(reference.subject, parent.place.subject), reference.version)
        if reference.name in found or place in open_places:
            continue
        if len(found) + len(open_places) >= MAX_REFERENCES:
            raise InvalidSchema(f"The schema has more than {MAX_REFERENCES} references.")
        target = state.versions(place.subject).get(place.version)
        if target is None:
            raise InvalidSchema(
                f"The reference '{reference.name}' leads to subject '{reference.subject}' version {reference.version}, "
                "which does not exist."
            )
        open_places.add(place)
        stack.append(_Open(Dependency(reference.name, target.text), place, iter(target.references)))
    return list(found.values())


# -- lookup ------------------------------------------------------------------------------------------------------------


def lookup(
    state: RegistryState, subject: str, request: SchemaRequest, *, normalize: bool = False, deleted: bool = False
) -> StoredSchema:
    """The version of the subject that is this schema; raises SUBJECT_NOT_FOUND and SCHEMA_NOT_FOUND."""
    if not any(deleted or not each.is_deleted for each in state.versions(subject).values()):
        raise subject_not_found(subject)
    made = parsed(state, subject, request, normalize=normalize)
    found = _same_version(state, subject, made, request, deleted=deleted)
    if found is None:
        raise schema_not_found()
    return found


def _same_version(
    state: RegistryState, subject: str, made: ParsedSchema, request: SchemaRequest, *, deleted: bool
) -> StoredSchema | None:
    candidates = [
        each
        for each in reversed(list(state.versions(subject).values()))
        if (deleted or not each.is_deleted)
        and (each.schema_type, each.references) == (request.schema_type, request.references)
        and (request.metadata is None or each.metadata == request.metadata)
    ]
    for each in candidates:
        if each.text == made.text:
            return each
    for each in candidates:
        try:
            if parsed_version(state, each).identity == made.identity:
                return each
        except InvalidSchema:
            continue  # written by a registry that allows more
    return None


# -- compatibility -----------------------------------------------------------------------------------------------------


def incompatibilities(
    level: str, made: ParsedSchema, schema_type: str, earlier: Sequence[tuple[StoredSchema, ParsedSchema]]
) -> list[str]:
    """Why the level forbids the schema after these versions, which are in their order."""
    kind, _, is_transitive = level.partition("_")
    found: list[str] = []
    for stored, each in reversed(earlier if is_transitive else earlier[-1:]):
        if kind == "NONE":
            break
        if stored.schema_type != schema_type:
            return [f"the schema type cannot change from {stored.schema_type} to {schema_type}"]
        if kind in ("BACKWARD", "FULL"):
            found += (f"version {stored.version}: {text}" for text in made.unreadable(each))
        if kind in ("FORWARD", "FULL"):
            found += (f"version {stored.version}, as its reader: {text}" for text in each.unreadable(made))
        if found:
            break
    return found


def check_compatibility(
    state: RegistryState,
    subject: str,
    request: SchemaRequest,
    versions: Sequence[StoredSchema],
    *,
    normalize: bool = False,
) -> list[str]:
    level = str(state.config_in_scope(subject)["compatibilityLevel"])
    made = parsed(state, subject, request, normalize=normalize)
    if level == "NONE":
        return []
    needed = versions if level.endswith("_TRANSITIVE") else versions[-1:]
    return incompatibilities(level, made, request.schema_type, [(each, parsed_version(state, each)) for each in needed])


# -- register ----------------------------------------------------------------------------------------------------------


def register(state: RegistryState, subject: str, request: SchemaRequest, *, normalize: bool = False) -> Registered:
    mode = state.mode_in_scope(subject)
    _check_mode(subject, request, mode)
    is_import = mode == IMPORT
    normalize = normalize or state.config_in_scope(subject).get("normalize") is True
    made = parsed(state, subject, request, normalize=normalize)
    if not is_import:
        same = _same_version(state, subject, made, request, deleted=False)
        if same is not None:
            return Registered(same)
    live = state.live_versions(subject)
    if not is_import:
        messages = check_compatibility(state, subject, request, live, normalize=normalize)
        if messages:
            raise Incompatible(subject, messages)
    _check_limits(state, subject)
    return _new_version(state, subject, request, made.text)


def _check_mode(subject: str, request: SchemaRequest, mode: str) -> None:
    if mode in (READONLY, READONLY_OVERRIDE):
        raise not_permitted(f"Subject '{subject}' is in read-only mode.")
    if mode == IMPORT and request.id is None:
        raise not_permitted(f"Subject '{subject}' is in import mode: a schema needs the id that it has elsewhere.")
    if mode == READWRITE and request.id is not None:
        raise not_permitted(f"Subject '{subject}' is not in import mode, so a schema cannot bring its id.")


def _check_limits(state: RegistryState, subject: str) -> None:
    if state.schema_count >= MAX_SCHEMAS:
        raise not_permitted(f"The registry has {MAX_SCHEMAS} schemas, which is its limit.")
    if len(state.versions(subject)) >= MAX_VERSIONS:
        raise not_permitted(f"Subject '{subject}' has {MAX_VERSIONS} versions, which is the limit.")


def _new_version(state: RegistryState, subject: str, request: SchemaRequest, text: str) -> Registered:
    context = context_of(subject)
    versions = state.versions(subject)
    next_version = max(versions, default=0) + 1
    version = request.version or next_version
    if version != next_version and request.id is None:
        raise InvalidSchema(
            f"Version {version} cannot be registered: the next version of the subject is {next_version}."
        )
    if version > MAX_INT32:
        raise not_permitted(f"Subject '{subject}' has no versions left.")
    schema = StoredSchema(
        subject=subject,
        version=version,
        id=0,
        text=text,
        schema_type=request.schema_type,
        references=request.references,
        metadata=request.metadata,
    )
    content = content_of(schema)
    number = request.id if request.id is not None else state.id_of(content)
    schema = replace(schema, id=state.next_id(context) if number is None else number)
    _check_id(state, context, schema, content)
    records = [] if context in (DEFAULT_CONTEXT, *state.contexts()) else [context_record(context)]
    records += _replaced(state, schema)
    record = schema_record(schema)
    if len(record.value or b"") > MAX_RECORD_BYTES:
        raise RegistryError(
            42209, f"The schema is too large: its record would have more than {MAX_RECORD_BYTES} bytes."
        )
    return Registered(schema, (*records, record))


def _check_id(state: RegistryState, context: str, schema: StoredSchema, content: Content) -> None:
    holders = state.by_id(context, schema.id)
    if holders and content_of(holders[0]) != content:
        raise not_permitted(f"Id {schema.id} belongs to another schema: '{holders[0].subject}' {holders[0].version}.")
    if schema.id > MAX_INT32:
        raise not_permitted(f"Context '{context}' has no ids left.")


def _replaced(state: RegistryState, schema: StoredSchema) -> list[Record]:
    """Tombstones for soft-deleted versions with the same id, unless others refer to them: the schema has come back."""
    return [
        tombstone(each.subject, each.version)
        for each in state.versions(schema.subject).values()
        if each.is_deleted
        and each.id == schema.id
        and each.version < schema.version
        and not state.referrers(Place(each.subject, each.version), deleted=True)
    ]
