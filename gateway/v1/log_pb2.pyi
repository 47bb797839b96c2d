from . import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Acks(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACKS_UNSPECIFIED: _ClassVar[Acks]
    ACKS_ALL: _ClassVar[Acks]
    ACKS_LEADER: _ClassVar[Acks]
    ACKS_NONE: _ClassVar[Acks]

class Reset(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESET_UNSPECIFIED: _ClassVar[Reset]
    RESET_EARLIEST: _ClassVar[Reset]
    RESET_LATEST: _ClassVar[Reset]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_ACCEPT: _ClassVar[Verdict]
    VERDICT_RELEASE: _ClassVar[Verdict]
    VERDICT_REJECT: _ClassVar[Verdict]
ACKS_UNSPECIFIED: Acks
ACKS_ALL: Acks
ACKS_LEADER: Acks
ACKS_NONE: Acks
RESET_UNSPECIFIED: Reset
RESET_EARLIEST: Reset
RESET_LATEST: Reset
VERDICT_UNSPECIFIED: Verdict
VERDICT_ACCEPT: Verdict
VERDICT_RELEASE: Verdict
VERDICT_REJECT: Verdict

class Producer(_message.Message):
    __slots__ = ("name", "sequence")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    sequence: int
    def __init__(self, name: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("topic", "partition", "records", "acks", "producer", "batches")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    records: _containers.RepeatedCompositeFieldContainer[_types_pb2.Record]
    acks: Acks
    producer: Producer
    batches: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[_types_pb2.Record, _Mapping]]] = ..., acks: _Optional[_Union[Acks, str]] = ..., producer: _Optional[_Union[Producer, _Mapping]] = ..., batches: _Optional[bytes] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("positions", "duplicate")
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    duplicate: bool
    def __init__(self, positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ProduceStreamRequest(_message.Message):
    __slots__ = ("id", "request")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    id: int
    request: ProduceRequest
    def __init__(self, id: _Optional[int] = ..., request: _Optional[_Union[ProduceRequest, _Mapping]] = ...) -> None: ...

class ProduceStreamResponse(_message.Message):
    __slots__ = ("id", "written", "failure")
    ID_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    id: int
    written: ProduceResponse
    failure: _types_pb2.Failure
    def __init__(self, id: _Optional[int] = ..., written: _Optional[_Union[ProduceResponse, _Mapping]] = ..., failure: _Optional[_Union[_types_pb2.Failure, _Mapping]] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("offset", "timestamp_ms", "earliest", "latest", "last")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    earliest: bool
    latest: bool
    last: int
    def __init__(self, offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., last: _Optional[int] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("topic", "partitions", "start", "consistency", "encoding", "max_bytes", "follow", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    start: Start
    consistency: _types_pb2.Consistency
    encoding: _types_pb2.Encoding
    max_bytes: int
    follow: bool
    limit: int
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., consistency: _Optional[_Union[_types_pb2.Consistency, str]] = ..., encoding: _Optional[_Union[_types_pb2.Encoding, str]] = ..., max_bytes: _Optional[int] = ..., follow: _Optional[bool] = ..., limit: _Optional[int] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("partition", "records", "batches", "high_watermark", "next_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    records: _containers.RepeatedCompositeFieldContainer[_types_pb2.Record]
    batches: bytes
    high_watermark: int
    next_offset: int
    def __init__(self, partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[_types_pb2.Record, _Mapping]]] = ..., batches: _Optional[bytes] = ..., high_watermark: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("join", "acknowledge", "credit")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    join: Join
    acknowledge: Acknowledge
    credit: int
    def __init__(self, join: _Optional[_Union[Join, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ..., credit: _Optional[int] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("group", "topics", "reset", "auto_commit", "share")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    AUTO_COMMIT_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    reset: Reset
    auto_commit: bool
    share: bool
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., reset: _Optional[_Union[Reset, str]] = ..., auto_commit: _Optional[bool] = ..., share: _Optional[bool] = ...) -> None: ...

class Acknowledge(_message.Message):
    __slots__ = ("topic", "partition", "offset", "verdict")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    verdict: Verdict
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., verdict: _Optional[_Union[Verdict, str]] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("delivery", "assignment")
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    delivery: Delivery
    assignment: Assignment
    def __init__(self, delivery: _Optional[_Union[Delivery, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("topic", "partition", "records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    records: _containers.RepeatedCompositeFieldContainer[_types_pb2.Record]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[_types_pb2.Record, _Mapping]]] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[_types_pb2.TopicPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[_types_pb2.TopicPartition, _Mapping]]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("topic", "partition", "offset", "timestamp_ms", "latest_of_key", "consistency")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LATEST_OF_KEY_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    latest_of_key: bytes
    consistency: _types_pb2.Consistency
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., latest_of_key: _Optional[bytes] = ..., consistency: _Optional[_Union[_types_pb2.Consistency, str]] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("record", "partition", "high_watermark")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    record: _types_pb2.Record
    partition: int
    high_watermark: int
    def __init__(self, record: _Optional[_Union[_types_pb2.Record, _Mapping]] = ..., partition: _Optional[int] = ..., high_watermark: _Optional[int] = ...) -> None: ...
