from _typeshed import ReadableBuffer

def walk(
    buffer: ReadableBuffer, start: int, end: int, count: int, base_timestamp: int, /
) -> tuple[int, int, int] | None: ...
