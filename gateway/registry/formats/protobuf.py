"""Protobuf. protoc, which grpcio-tools brings as a library, compiles a schema to its descriptor.

A schema is text, or a FileDescriptorProto in base64: that is what Python's serializer sends, and what it asks for with
`format=serialized`. Text is stored as it is; a descriptor is stored as the text that `protobuf_text.py` prints. Two
schemas of a subject are the same if their descriptors are: comments and spaces do not count.

protoc reads files, so schema and references are written to a temporary folder, for the length of a call. A call is one
of C++ that holds the interpreter, so calls are made one at a time.
"""

import ast
import base64
import binascii
import os
import re
import tempfile
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_tools import _protoc_compiler

from ..errors import InvalidSchema
from .parsed import MAX_MESSAGES, Dependency, ParsedSchema, checked_size
from .protobuf_diff import Types, differences
from .protobuf_text import print_file

MAIN: Final = "trioka-schema.proto"  # the name of the schema's file, which no reference may have
WELL_KNOWN: Final = Path(grpc_tools.__file__).parent / "_proto"
MAX_NAME_CHARS: Final = 255
SERIALIZED: Final = "serialized"
_SERIALIZED_FILE: Final = re.compile(rb"AddSerializedFile\((b'(?:[^'\\]|\\.)*'|b\"(?:[^\"\\]|\\.)*\")\)")
_DECLARES_SYNTAX: Final = re.compile(r"^\s*(syntax|edition)\s*=", re.MULTILINE)
_lock: Final = threading.Lock()


class ProtobufSchema(ParsedSchema):
    def __init__(self, text: str, dependencies: Sequence[Dependency]) -> None:
        files = {each.name: each.text for each in dependencies}
        given = _descriptor(text)
        if given is not None:
            text = print_file(given)
        checked_size(text)
        descriptors = compile_files({**files, MAIN: text})
        self.text = text
        self.descriptor = descriptors[MAIN]
        self.files = [each for name, each in descriptors.items() if name != MAIN]
        self.types = Types([*self.files, self.descriptor])
        self.identity = base64.b64encode(self.descriptor.SerializeToString(deterministic=True)).decode()

    def normalized(self) -> str:
        """Printed from the descriptor. A schema with options of its own stays: only its text has their names."""
        return self.text if _has_unknown_options(self.descriptor) else print_file(self.descriptor, is_sorted=True)

    def unreadable(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, ProtobufSchema)
        found = differences(writer.descriptor, writer.types, self.descriptor, self.types)
        return found[:MAX_MESSAGES]

    def formatted(self, form: str) -> str:
        return self.identity if form == SERIALIZED else self.text


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor, if the text is one in base64."""
    try:
        data = base64.b64decode(text, validate=True)
        found = FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None
    return found if data and (found.message_type or found.enum_type or found.dependency or found.syntax) else None


def compile_files(files: dict[str, str]) -> dict[str, FileDescriptorProto]:
    """The descriptors of these files and of all that they import, in the order of imports."""
    with tempfile.TemporaryDirectory(prefix="trioka-protoc-") as folder:
        for name, text in files.items():
            path = Path(folder) / checked_name(name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                # Without this default, which protoc has as well, it writes a warning to standard error.
                prefix = "" if _DECLARES_SYNTAX.search(text) else 'syntax = "proto2";'
                path.write_text(prefix + text, encoding="utf-8")
            except (OSError, ValueError) as error:
                raise InvalidSchema(f"The reference '{name}' cannot be the name of an imported file: {error}") from None
        with _lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # protoc warns of unused imports
            try:
                generated = _protoc_compiler.get_protos(MAIN.encode(), [os.fsencode(folder), os.fsencode(WELL_KNOWN)])
            except _protoc_compiler.ProtocErrors as error:
                raise InvalidSchema(_sentence(error)) from None
    found: dict[str, FileDescriptorProto] = {}
    for _, code in generated:
        descriptor = FileDescriptorProto.FromString(_serialized(code))
        found[descriptor.name] = descriptor
    return found


def _serialized(code: bytes) -> bytes:
    """The descriptor in the Python code that protoc generates: the only form in which it leaves memory for memory."""
    literal = _SERIALIZED_FILE.search(code)
    assert literal is not None, "protoc generates other code than the one that this module reads"
    data = ast.literal_eval(literal[1].decode())
    assert isinstance(data, bytes)
    return data


def _sentence(error: Any) -> str:
    found = []
    for each in error.errors()[:10]:
        file, message = each.filename.decode(errors="replace"), each.message.decode(errors="replace")
        place = "" if each.line < 0 else f"line {each.line + 1}, column {each.column + 1}: "
        found.append(f"{'' if file == MAIN else f'{file}: '}{place}{message}".replace(f'"{MAIN}"', "the schema"))
    return f"The schema is not valid Protobuf: {'; '.join(found)}"


def checked_name(name: str) -> str:
    """A name below the temporary folder: imports may not leave it."""
    parts = name.split("/")
    is_bad = any(part in ("", ".", "..") or not part.isprintable() for part in parts) or "\\" in name
    if is_bad or len(name.encode(errors="replace")) > MAX_NAME_CHARS or (name == MAIN and len(parts) > 1):
        raise InvalidSchema(f"The reference '{name[:100]}' cannot be the name of an imported file.")
    return name


def _has_unknown_options(message: Message) -> bool:
    if len(UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        if field.message_type is not None:
            values = value if field.is_repeated else [value]
            if any(_has_unknown_options(each) for each in values):
                return True
    return False
