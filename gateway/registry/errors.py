"""Errors of the schema registry, each with Confluent's code.

A code of five digits begins with the HTTP status.
"""

from ..coded_error import CodedError


class RegistryError(CodedError):
    """A request that the registry refuses."""


class InvalidSchema(RegistryError):
    """A schema that its format does not allow, or a reference without a target."""

    def __init__(self, message: str) -> None:
        super().__init__(42201, message)


class Incompatible(RegistryError):
    def __init__(self, subject: str, messages: list[str]) -> None:
        text = f"Schema being registered is incompatible with an earlier schema for subject '{subject}': "
        super().__init__(409, text + "; ".join(messages))
        self.messages = messages


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(number: object = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if number is None else f"Schema {number} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete it permanently.")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    text = f"Subject '{subject}' must be deleted without permanent=true before it is deleted permanently."
    return RegistryError(40405, text)


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    text = f"Subject '{subject}' version {version} was soft deleted. Set permanent=true to delete it permanently."
    return RegistryError(40406, text)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    text = (
        f"Subject '{subject}' version {version} must be deleted without permanent=true before it is deleted for good."
    )
    return RegistryError(40407, text)


def no_subject_config(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def invalid_version(text: object) -> RegistryError:
    return RegistryError(
        42202,
        f"The version '{text}' is not valid: it must be a number from 1 to 2147483647, or 'latest'.",
    )


def invalid_level(text: object) -> RegistryError:
    return RegistryError(
        42203,
        f"Invalid compatibility level '{text}': it must be NONE, BACKWARD, FORWARD, FULL, BACKWARD_TRANSITIVE, "
        "FORWARD_TRANSITIVE or FULL_TRANSITIVE.",
    )


def invalid_mode(text: object) -> RegistryError:
    return RegistryError(42204, f"Invalid mode '{text}': it must be READWRITE, READONLY, READONLY_OVERRIDE or IMPORT.")


def not_permitted(message: str) -> RegistryError:
    return RegistryError(42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    text = f"One or more schemas refer to subject '{subject}' version {version}; delete those first."
    return RegistryError(42206, text)


def invalid_subject(subject: str) -> RegistryError:
    text = f"The subject '{subject}' is not valid: it must not be empty, nor contain control characters."
    return RegistryError(42208, text)


def store_failed(message: str) -> RegistryError:
    return RegistryError(50001, message)


def timed_out(message: str) -> RegistryError:
    return RegistryError(50002, message)


def no_writer(message: str) -> RegistryError:
    return RegistryError(50003, message)
