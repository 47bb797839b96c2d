"""DescribeLogDirs (35): what lies in each log directory, and how large it is.

v2 flexible · v3 an error for the whole answer · v4 the volume's size · v5 whether a directory takes no new
replicas
"""

from ..primitives import Boolean, Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible="2+"):
    class Topic(Struct):
        topic: String
        partitions: list[Int32]

    topics: list[Topic] | None


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible="2+"):
    class Result(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: Int32
                partition_size: Int64
                offset_lag: Int64
                is_future_key: Boolean

            name: String
            partitions: list[Partition]

        error_code: Int16
        log_dir: String
        topics: list[Topic]
        total_bytes: Int64 = field("4+", default=-1, ignorable=True)
        usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
        is_cordoned: Boolean = field("5+", default=False, ignorable=True)

    throttle_time_ms: Int32
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[Result]
