"""DeleteRecords (21): moves the start of partitions forward, and deletes the records before it.

v2 flexible
"""

from ..primitives import Int16, Int32, Int64, String
from ..schema import Request, Response, Struct


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            offset: Int64

        name: String
        partitions: list[Partition]

    topics: list[Topic]
    timeout_ms: Int32


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            low_watermark: Int64
            error_code: Int16

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32
    topics: list[Topic]
