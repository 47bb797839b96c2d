"""Decodes values by their schema, for `consume --decode avro` and `--decode protobuf`.

    --decode registry --registry http://localhost:8082   values and keys name their schemas by ids, of any type
    --decode avro --registry http://localhost:8082       each value names its schema by an id (0, and four bytes)
    --decode avro --schema order.avsc [--framed]         one schema for all; with --framed an id precedes each value
    --decode protobuf --schema order.desc --message shop.Order [--framed]

The decoders are those of pipelines (`trioka.pipeline`); fastavro and protobuf are loaded when they are needed, and are
installed by `trioka[decode]`. A value that cannot be decoded is shown in base64, and counted: the command then ends
with exit code 7. A registry that does not answer ends the command at once.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from trioka.pipeline.errors import InvalidPipeline
from trioka.pipeline.installation.cache import Unreachable
from trioka.protocol.schema_framing import Undecodable, framed

from ..terminal.failure import Exit, Failure
from ..terminal.output import write_stderr

if TYPE_CHECKING:
    from trioka.pipeline.formats.avro import AvroDecoder

AVRO, PROTOBUF, REGISTRY = "avro", "protobuf", "registry"
SCHEMAS: Final = (AVRO, PROTOBUF, REGISTRY)
MAX_SCHEMA_BYTES: Final = 16 << 20
KEPT: Final = 1000  # cached schemas of a registry; a full cache is cleared

Decode: TypeAlias = Callable[[bytes], Any]


class Decoder:
    """Called with a value. It never raises for a bad value: `failures` counts those. `decodes_keys` says whether keys
    that begin with a schema id have one."""

    def __init__(self, decode: Decode, *, decodes_keys: bool = False) -> None:
        self._decode = decode
        self.decodes_keys = decodes_keys
        self.failures = 0
        self.first = ""

    def __call__(self, data: bytes) -> Any:
        try:
            return self._decode(data)
        except Unreachable as error:
            raise Failure(str(error).removesuffix("."), exit_code=Exit.UNREACHABLE) from None
        except (Undecodable, TypeError, ValueError) as error:  # TypeError, ValueError: a schema that is no record
            self.first = self.first or str(error)
            self.failures += 1
            return {"base64": base64.b64encode(data).decode()}

    def verdict(self) -> int:
        if not self.failures:
            return Exit.OK
        write_stderr(f"{self.failures} values could not be decoded and are shown in base64; the first: {self.first}")
        return Exit.PARTLY


def decoder_for(
    how: str, schema: str | None, registry: str | None, message: str | None, is_framed: bool, timeout_s: float
) -> Decoder:
    """The decoder of one of `SCHEMAS`."""
    if how == REGISTRY:
        return _by_registry(schema, registry, message, is_framed, timeout_s)
    if registry is not None and (schema is not None or how == PROTOBUF):
        raise click.UsageError(
            "give --schema or --registry, not both."
            if how == AVRO
            else "Protobuf of a registry is decoded by --decode registry; --decode protobuf takes a --schema."
        )
    if schema is None and registry is None:
        raise click.UsageError(f"--decode {how} needs --schema FILE{' or --registry URL' if how == AVRO else ''}.")
    if (message is not None) != (how == PROTOBUF):
        raise click.UsageError("--message names a Protobuf message; it goes with --decode protobuf, which needs it.")
    try:
        return Decoder(_avro(schema, registry, is_framed) if how == AVRO else _protobuf(schema, message, is_framed))
    except ImportError as error:
        what = f"--decode {how} needs '{error.name}', which is not installed"
        raise Failure(what, hints=["install it: pip install 'trioka[decode]'"]) from None


def _by_registry(
    schema: str | None, registry: str | None, message: str | None, is_framed: bool, timeout_s: float
) -> Decoder:
    if schema is not None or message is not None or is_framed:
        raise click.UsageError(
            "--decode registry finds schema and message by the record itself: only --registry goes with it."
        )
    from ..client.registry_client import RegistryClient  # loads Python's HTTP client: half of the start of `consume`
    from .registry_decoding import RegistryDecoder

    return Decoder(RegistryDecoder(RegistryClient(registry, timeout_s)), decodes_keys=True)


def _avro(schema: str | None, registry: str | None, is_framed: bool) -> Decode:
    from trioka.pipeline.formats.avro import AvroDecoder

    if schema is None:
        assert registry is not None
        return _ByRegistry(registry)
    text = _read(schema).decode("utf-8", "replace")
    made: Decode = _checked(
        lambda: AvroDecoder(reader=text, is_framed=is_framed, registry=None, writers={}),
        schema,
    )
    return made


def _protobuf(schema: str | None, message: str | None, is_framed: bool) -> Decode:
    from trioka.pipeline.formats.protobuf import ProtobufDecoder, message_class

    assert schema is not None and message is not None
    descriptor = _read(schema)
    _checked(lambda: message_class(descriptor, message), schema)
    return ProtobufDecoder(descriptor=descriptor, message=message, is_framed=is_framed)


def _read(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            return opened.read(MAX_SCHEMA_BYTES)
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}", exit_code=Exit.NOT_FOUND) from None


def _checked(make: Callable[[], Any], file: str) -> Any:
    """Errors of a schema name its file, and not the configuration key of a pipeline."""
    try:
        return make()
    except InvalidPipeline as error:
        sentence = str(error).partition(": ")[2].removesuffix(".")
        raise Failure(f"{file}: {sentence}", exit_code=Exit.USAGE) from None


class _ByRegistry:
    """Decodes each value by the schema that wrote it."""

    def __init__(self, registry: str) -> None:
        self._registry = registry.rstrip("/")
        self._by_id: dict[int, AvroDecoder | None] = {}

    def __call__(self, data: bytes) -> Any:
        number, rest = framed(data)
        if number not in self._by_id:
            if len(self._by_id) >= KEPT:
                self._by_id.clear()
            self._by_id[number] = self._ask(number)
        decoder = self._by_id[number]
        if decoder is None:
            raise Undecodable(f"the registry has no Avro schema with the id {number}")
        return decoder(rest)

    def _ask(self, number: int) -> "AvroDecoder | None":
        from trioka.pipeline.formats.avro import AvroDecoder, registered_schema

        text = registered_schema(f"{self._registry}/schemas/ids/{number}")
        try:
            return None if text is None else AvroDecoder(reader=text, is_framed=False, registry=None, writers={})
        except InvalidPipeline:
            return None
