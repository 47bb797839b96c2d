"""Deletions, compatibility levels and modes: which records a request adds. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from .errors import (
    RegistryError,
    invalid_level,
    invalid_mode,
    no_subject_config,
    no_subject_mode,
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from .records import (
    JsonObject,
    Record,
    clear_subject_record,
    config_record,
    delete_subject_record,
    mode_record,
    schema_record,
    schema_tombstone,
)
from .state import (
    DEFAULT_LEVEL,
    IMPORT,
    LATEST,
    LEVELS,
    MODES,
    READONLY,
    READONLY_OVERRIDE,
    READWRITE,
    Place,
    RegistryState,
)


class Change(NamedTuple):
    """Records to append, and the body of the response."""

    records: tuple[Record, ...]
    body: Any


def delete_version(state: RegistryState, subject: str, version: int, *, permanent: bool) -> Change:
    _check_writable(state, subject)
    versions = state.versions(subject)
    if not versions or (not permanent and all(each.is_deleted for each in versions.values())):
        raise subject_not_found(subject)
    live = state.live_versions(subject)
    if version == LATEST:
        candidates = live if not permanent else list(versions.values())
        version = candidates[-1].version
    schema = versions.get(version)
    if schema is None:
        raise version_not_found(version)
    if schema.is_deleted and not permanent:
        raise version_soft_deleted(subject, version)
    if not schema.is_deleted and permanent:
        raise version_not_soft_deleted(subject, version)
    if state.referrers(Place(subject, version), deleted=permanent):
        raise reference_exists(subject, version)
    if not permanent:
        return Change((schema_record(replace(schema, is_deleted=True)),), version)
    records = [schema_tombstone(subject, version)]
    if len(versions) == 1:
        records += _forget(state, subject)
    return Change(tuple(records), version)


def _forget(state: RegistryState, subject: str) -> list[Record]:
    """Level and mode of a subject go with its last version."""
    found = []
    if state.mode(subject) is not None:
        found.append(mode_record(subject, None))
    if state.config(subject) is not None:
        found.append(config_record(subject, None))
    return found


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Change:
    _check_writable(state, subject)
    versions = state.versions(subject)
    live = state.live_versions(subject)
    if not versions:
        raise subject_not_found(subject)
    if not permanent and not live:
        raise subject_soft_deleted(subject)
    if permanent and live:
        raise subject_not_soft_deleted(subject)
    doomed = list(versions.values()) if permanent else live
    for each in doomed:
        referrers = state.referrers(Place(subject, each.version), deleted=permanent)
        if any(other.subject != subject for other in referrers):
            raise reference_exists(subject, each.version)
    numbers = [each.version for each in doomed]
    if not permanent:
        return Change((delete_subject_record(subject, numbers[-1]),), numbers)
    tombstones = [schema_tombstone(subject, number) for number in reversed(numbers)]  # references within come first
    return Change((*tombstones, *_forget(state, subject)), numbers)


# -- levels ------------------------------------------------------------------------------------------------------------


def set_config(state: RegistryState, subject: str | None, request: Mapping[str, Any]) -> Change:
    """`request` is the body of PUT /config; fields that are left out keep their value."""
    _check_writable(state, subject)
    level = request.get("compatibility", request.get("compatibilityLevel"))
    if level is not None and (not isinstance(level, str) or level.upper() not in LEVELS):
        raise invalid_level(level)
    normalize = request.get("normalize")
    if normalize is not None and not isinstance(normalize, bool):
        raise RegistryError(422, "normalize must be true or false.")
    for name in request:
        if name not in ("compatibility", "compatibilityLevel", "normalize") and request[name] is not None:
            raise RegistryError(422, f"The setting '{name[:50]}' is not supported: a level and 'normalize' can be set.")
    if level is None and normalize is None:
        raise invalid_level(level)
    before = state.config(subject) or {}
    after: dict[str, Any] = {}
    if normalize is not None or "normalize" in before:
        after["normalize"] = before.get("normalize") if normalize is None else normalize
    if level is not None or "compatibilityLevel" in before:
        after["compatibilityLevel"] = before.get("compatibilityLevel") if level is None else str(level).upper()
    kept = {name: each for name, each in before.items() if name not in after}
    body = {"compatibility": level.upper()} if isinstance(level, str) else {}
    return Change(
        (config_record(subject, after | kept),), body | ({} if normalize is None else {"normalize": normalize})
    )


def get_config(state: RegistryState, subject: str | None, *, default_to_global: bool) -> JsonObject:
    if subject is None or default_to_global:
        return state.config_in_scope(subject)
    found = state.config(subject)
    if found is None:
        raise no_subject_config(subject)
    return found


def delete_config(state: RegistryState, subject: str | None) -> Change:
    _check_writable(state, subject)
    found = state.config(subject)
    if found is None and subject is not None:
        raise no_subject_config(subject)
    before = found or {"compatibilityLevel": DEFAULT_LEVEL}
    return Change(() if found is None else (config_record(subject, None),), config_body(before))


def config_body(config: JsonObject) -> JsonObject:
    return {name: config[name] for name in ("normalize", "compatibilityLevel") if config.get(name) is not None}


# -- modes -------------------------------------------------------------------------------------------------------------


def set_mode(state: RegistryState, subject: str | None, mode: object, *, force: bool) -> Change:
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise invalid_mode(mode)
    mode = mode.upper()
    if mode == READONLY_OVERRIDE and subject is not None:
        raise invalid_mode(f"{mode} of a subject")
    records: list[Record] = []
    if mode == IMPORT and state.mode_in_scope(subject) != IMPORT and not force:
        records = _cleared(state, subject)
    return Change((*records, mode_record(subject, mode)), {"mode": mode})


def _cleared(state: RegistryState, subject: str | None) -> list[Record]:
    """Importing needs room: no live schemas, and what was soft-deleted is removed."""
    doomed = [each for name in state.subjects_in(subject) for each in state.versions(name).values()]
    if any(not each.is_deleted for each in doomed):
        raise not_permitted("Import mode needs an empty registry or subject, or force=true: there are schemas.")
    for each in doomed:
        others = state.referrers(Place(each.subject, each.version), deleted=True)
        if any(other not in doomed for other in others):
            raise reference_exists(each.subject, each.version)
    return [*(schema_tombstone(each.subject, each.version) for each in doomed), clear_subject_record(subject)]


def get_mode(state: RegistryState, subject: str | None, *, default_to_global: bool) -> str:
    if subject is None:
        return state.mode(None) or READWRITE
    if default_to_global:
        return state.mode_in_scope(subject)
    found = state.mode(subject)
    if found is None:
        raise no_subject_mode(subject)
    return found


def delete_mode(state: RegistryState, subject: str | None) -> Change:
    found = state.mode(subject)
    if found is None and subject is not None:
        raise no_subject_mode(subject)
    return Change(() if found is None else (mode_record(subject, None),), {"mode": found or READWRITE})


def _check_writable(state: RegistryState, subject: str | None) -> None:
    if state.mode_in_scope(subject) in (READONLY, READONLY_OVERRIDE):
        where = "The registry" if subject is None else f"Subject '{subject}'"
        raise not_permitted(f"{where} is in read-only mode.")
