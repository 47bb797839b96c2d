"""`trioka explain`: what an error code or a config key means, and what to do about it. Works without a broker."""

from collections.abc import Iterator

import click

from trioka.protocol import errors

from .problems import KNOWN_PROBLEMS, REMEDIES, exit_code, label
from .terminal.failure import KAFKA_CODES_FROM, Exit, Failure, did_you_mean
from .terminal.output import write_stdout


@click.command("explain")
@click.argument("what", metavar="CODE|KEY")
def explain(what: str) -> None:
    """An error code (TRK-1003, UNKNOWN_TOPIC_OR_PARTITION, 3) or a config key (retention.ms)."""
    lines = list(_trouble(what) or _kafka_error(what) or _key(what))
    if not lines:
        raise Failure(
            f"'{what}' is neither an error code nor a config key", exit_code=Exit.NOT_FOUND, hints=_near(what)
        )
    write_stdout("\n".join(lines))


def _trouble(what: str) -> list[str]:
    found = [each for each in KNOWN_PROBLEMS.values() if what.upper() in (each.code, each.name)]
    return [
        line
        for each in found
        for line in (
            f"{each.code} {each.name}",
            f"  {each.meaning}",
            f"  What to do: {each.remedy}",
            _ends(each.exit_code),
        )
    ]


def _kafka_error(what: str) -> list[str]:
    number = what.upper().removeprefix("TRK-")
    code = None
    if number.removeprefix("-").isdigit():
        code = int(number) - (KAFKA_CODES_FROM if what.upper().startswith("TRK-") else 0)
    for error in errors.BY_CODE.values():
        if error.code == code or error.name == what.upper():
            again = "Clients try again by themselves." if error.retriable else "Trying again does not help."
            lines = [f"{label(error)} {error.name} (Kafka's error {error.code})", f"  {(error.__doc__ or '').strip()}"]
            lines += [f"  What to do: {REMEDIES[error]}"] if error in REMEDIES else []
            return [*lines, f"  {again}", _ends(exit_code(error))]
    return []


def _ends(code: int) -> str:
    return f"  A command that meets it ends with {code}."


def _key(what: str) -> Iterator[str]:
    from .config_reference import declared_keys

    for kind, key in declared_keys().get(what, []):
        yield f"{key.name} ({kind}, {key.type.name})"
        yield f"  {key.doc}"
        default = "there is none; it must be set" if key.required else (key.default_text or "not set")
        yield f"  Default: {default}"
        if valid := key.type.valid():
            yield f"  Valid: {valid}"
        if key.synonyms:
            broker_keys = ", ".join(each.name for each in key.synonyms)
            yield f"  Without a value of its own, a {kind} takes the broker's {broker_keys}."
        elif kind == "broker":
            yield f"  Changed: {key.mode.words}"
        if key.effect:
            yield f"  In trioka it has no effect: {key.effect}."


def _near(what: str) -> list[str]:
    from .config_reference import declared_keys

    names = [error.name for error in errors.BY_CODE.values()]
    return did_you_mean(what.upper(), names) or did_you_mean(what, declared_keys())
