"""The codecs of a record batch: gzip, snappy, lz4 and zstd, as Kafka's clients write them, and never a bomb.

Eight kilobytes of zstd can encode 256 MiB of zero bytes (32,696 : 1), gzip 1,029 : 1, lz4 243 : 1, snappy 21 : 1. So
this module trusts no size that the data declares: it produces output in steps of at most `CHUNK_BYTES`, counts it, and
stops as soon as it passes the limit, which is `default_limit(compressed size)` unless the caller names another. Memory
stays below the limit plus an eighth (the growing buffer) plus a few steps, for any input. Elements that repeat without
making output (gzip members, zstd frames and blocks, snappy blocks) have their own limit: an empty one costs time too.

The remaining cases follow the Java client:

    codec    format on the wire                             twice in a row      trailing bytes
    gzip     RFC 1952                                       both are read       ignored
    snappy   xerial frames (Java, kafka-python, aiokafka)   both are read       ignored up to 3 bytes, else refused
             or one raw block (librdkafka)                  refused             refused
    lz4      the frame format                               the first is read   ignored
    zstd     RFC 8878                                       both are read       refused

A stream that ends too early is refused by all. lz4 with dependent blocks is read, though Java refuses it, because that
costs nothing.

A zstd frame declares its window before any data, and levels above 19 declare up to 128 MiB. A window above
`ZSTD_WINDOW_BYTES` is granted only to a frame that cannot fill more than that: its blocks are counted beforehand and
make at most 128 KiB each, and memory that is never written to costs nothing. (A batch of the Java client at level 20 to
22 is read in this way; a frame that really produces more than 8 MiB with such a window is refused.)

The libraries are imported when a codec is first used: a broker that only passes batches on never needs them.
"""

import zlib
from collections.abc import Iterator
from enum import IntEnum
from io import BytesIO
from struct import Struct
from typing import Final

from .errors import ProtocolError

KIB: Final = 1024
MIB: Final = 1024 * KIB

LIMIT_RATIO: Final = 64  # of decompressed to compressed bytes; text of machines reaches 20 to 40
LIMIT_FLOOR_BYTES: Final = MIB  # small batches may be as repetitive as they like
LIMIT_CEILING_BYTES: Final = 128 * MIB  # above the 100 MiB that a request may have

CHUNK_BYTES: Final = 128 * KIB  # output made in one step
FEED_BYTES: Final = 64 * KIB  # input given in one step: a library copies what it does not use yet
FRAME_LIMIT: Final = 1024  # gzip members, zstd frames
BLOCK_LIMIT: Final = 65_536  # zstd and snappy blocks: 2 GiB of the 32 KiB blocks that Java writes
ZSTD_WINDOW_BYTES: Final = 8 * MIB  # the window that RFC 8878 requires every decoder to support
ZSTD_LARGE_WINDOW_BYTES: Final = 128 * MIB  # the most that Java's decoder grants
ZSTD_BLOCK_BYTES: Final = 128 * KIB  # the most that one block makes


class CompressionError(ProtocolError):
    """The data is malformed or incomplete for its codec."""


class DecompressedTooLarge(CompressionError):
    """The data would grow beyond the limit."""


class Codec(IntEnum):
    """As in the lowest three bits of a batch's attributes; the name in lower case is that of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# The levels that `compression.gzip.level` and its siblings allow, and their defaults.
LEVELS: Final = {Codec.GZIP: range(1, 10), Codec.LZ4: range(1, 18), Codec.ZSTD: range(-131_072, 23)}
DEFAULT_LEVELS: Final = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}


def default_limit(compressed_bytes: int) -> int:
    """How much `compressed_bytes` may become: 64 times as much and 1 MiB, but never above 128 MiB."""
    return min(LIMIT_RATIO * compressed_bytes + LIMIT_FLOOR_BYTES, LIMIT_CEILING_BYTES)


def decompress(codec: Codec, data: bytes | bytearray | memoryview, limit: int | None = None) -> bytes:
    """The decompressed `data`. CompressionError if it is damaged, DecompressedTooLarge above `limit`."""
    view = memoryview(data)
    if limit is None:
        limit = len(view) if codec is Codec.NONE else default_limit(len(view))
    if codec is Codec.NONE:
        if len(view) > limit:
            raise DecompressedTooLarge(f"{len(view)} bytes are more than the limit of {limit}")
        return bytes(view)
    out = BytesIO()  # hands its buffer over in getvalue(), where joining a list would need twice the memory
    for chunk in _DECODERS[codec](view, limit):
        if out.tell() + len(chunk) > limit:
            name = codec.name.lower()
            raise DecompressedTooLarge(f"{len(view)} bytes of {name} become more than the limit of {limit}")
        out.write(chunk)
    return out.getvalue()


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """`data` as Kafka's Java client would write it, at `level` or Kafka's default. snappy has no levels."""
    if level is None or level == DEFAULT_LEVELS.get(codec):
        level = DEFAULT_LEVELS.get(codec, 0)
    elif codec not in LEVELS:
        raise ValueError(f"{codec.name.lower()} has no compression level")
    elif level not in LEVELS[codec]:
        allowed = LEVELS[codec]
        raise ValueError(f"{codec.name.lower()} levels go from {allowed[0]} to {allowed[-1]}, not {level}")
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            stream = zlib.compressobj(level, wbits=GZIP_WBITS)
            return stream.compress(data) + stream.flush()
        case Codec.SNAPPY:
            return _write_snappy(memoryview(data))
        case Codec.LZ4:
            return _write_lz4(data, level)
        case Codec.ZSTD:
            import zstandard

            # In one go, so that zstd sees the size and does not set up level 22's 700 MiB for a few kilobytes.
            return zstandard.ZstdCompressor(level=level).compress(data)


# --- gzip

GZIP_WBITS: Final = 31  # a 32 KiB window inside of gzip's own header and trailer
GZIP_MAGIC: Final = b"\x1f\x8b\x08"  # the third byte: deflate, the only method there is


def _read_gzip(data: memoryview, limit: int) -> Iterator[bytes]:
    position = 0
    for _ in range(FRAME_LIMIT):
        member = zlib.decompressobj(wbits=GZIP_WBITS)
        try:
            while not member.eof:
                feed: bytes | memoryview = member.unconsumed_tail
                if not feed:
                    feed = data[position : position + FEED_BYTES]
                    position += len(feed)
                chunk = member.decompress(feed, CHUNK_BYTES)
                if not feed and not chunk and not member.eof:
                    raise CompressionError("gzip ends too early")
                yield chunk
        except zlib.error as error:
            raise CompressionError(f"gzip is damaged: {error}") from error
        position -= len(member.unused_data)
        if bytes(data[position : position + len(GZIP_MAGIC)]) != GZIP_MAGIC:
            return
    raise CompressionError(f"gzip has more than {FRAME_LIMIT} members")


# --- snappy
#
# A raw block begins with the size of what it makes, as an unsigned varint; the library allocates that much at once.
# The xerial frame, from snappy-java, puts any number of raw blocks behind a header and their sizes:
#
#     82 53 4e 41 50 50 59 00   00000001   00000001   size   block   size   block …
#     82 "SNAPPY" 00            version    readable   int32
#                                          by
#
# A second header in the place of a size starts another stream and is stepped over.

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
XERIAL_BLOCK_BYTES: Final = 32 * KIB
_SIZE: Final = Struct(">i")


def _read_snappy(data: memoryview, limit: int) -> Iterator[bytes]:
    if len(data) < len(XERIAL_HEADER) or bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield _read_snappy_block(data, limit)
        return
    position = made = blocks = 0
    while position + _SIZE.size <= len(data):
        if bytes(data[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            continue
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        blocks += 1
        if not 0 < size <= len(data) - position:
            raise CompressionError(f"a snappy block of {size} bytes where {len(data) - position} are left")
        if blocks > BLOCK_LIMIT:
            raise CompressionError(f"snappy has more than {BLOCK_LIMIT} blocks")
        chunk = _read_snappy_block(data[position : position + size], limit - made)
        position += size
        made += len(chunk)
        yield chunk


def _read_snappy_block(block: memoryview, max_bytes: int) -> bytes:
    import snappy

    declared = shift = 0
    for byte in block[:5]:
        declared |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if declared > max_bytes:
        raise DecompressedTooLarge(f"a snappy block of {declared} bytes where {max_bytes} are allowed")
    try:
        return bytes(snappy.uncompress(bytes(block)))
    except snappy.UncompressError as error:
        raise CompressionError(f"snappy is damaged: {error.__cause__}") from error


def _write_snappy(data: memoryview) -> bytes:
    import snappy

    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(data[start : start + XERIAL_BLOCK_BYTES]))
        out += _SIZE.pack(len(block))
        out += block
    return bytes(out)


# --- lz4


def _read_lz4(data: memoryview, limit: int) -> Iterator[bytes]:
    import lz4.frame

    frame = lz4.frame.LZ4FrameDecompressor()
    position = idle = 0
    try:
        while not frame.eof:
            feed = data[position : position + FEED_BYTES] if frame.needs_input or idle else data[:0]
            position += len(feed)
            chunk: bytes = frame.decompress(feed, max_length=CHUNK_BYTES)
            # One step without output is not the end: the rest of the last feed may be the first part of a block.
            idle = 0 if feed or chunk else idle + 1
            if idle == 2 and not frame.eof:
                raise CompressionError("lz4 ends too early")
            yield chunk
    except RuntimeError as error:
        raise CompressionError(f"lz4 is damaged: {error}") from error


def _write_lz4(data: bytes | bytearray | memoryview, level: int) -> bytes:
    import lz4.frame

    # 9 is Kafka's default and there means the fast compressor; every other level means the thorough one, which in
    # the library begins at 3 and ends at 12.
    framed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level == DEFAULT_LEVELS[Codec.LZ4] else max(level, lz4.frame.COMPRESSIONLEVEL_MINHC),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,  # Java reads no other
        store_size=False,
    )
    return framed


# --- zstd
#
# The library reads a cut-off frame without complaint, so the frame is walked first, which is cheap: one step a block.
#
#     28 b5 2f fd   flags   window   dictionary id   content size   blocks …            checksum
#                   1       0 or 1   0, 1, 2, 4      0, 1, 2, 4, 8  3 + size of each    0 or 4
#
# A block's three bytes, little endian: bit 0 the last one · bits 1-2 raw, one byte repeated, compressed · the size.
# 50 to 5f 2a 4d 18, then a length, is a frame to be stepped over.

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
ZSTD_REPEATED: Final = 1


def _read_zstd(data: memoryview, limit: int) -> Iterator[bytes]:
    import zstandard

    position = blocks = 0
    for _ in range(FRAME_LIMIT):
        if position == len(data):
            return
        end, frame_blocks = _walk_zstd_frame(data, position, BLOCK_LIMIT - blocks)
        blocks += frame_blocks
        large = frame_blocks * ZSTD_BLOCK_BYTES <= ZSTD_WINDOW_BYTES
        window = ZSTD_LARGE_WINDOW_BYTES if large else ZSTD_WINDOW_BYTES
        try:
            decompressor = zstandard.ZstdDecompressor(max_window_size=window)
            with decompressor.stream_reader(data[position:end]) as reader:
                while chunk := reader.read(CHUNK_BYTES):
                    yield chunk
        except zstandard.ZstdError as error:
            raise CompressionError(f"zstd is damaged: {error}") from error
        position = end
    raise CompressionError(f"zstd has more than {FRAME_LIMIT} frames")


def _walk_zstd_frame(data: memoryview, start: int, block_limit: int) -> tuple[int, int]:
    """Where the frame ends, and how many blocks it has."""
    position, blocks = start, 0
    try:
        magic = bytes(data[start : start + 4])
        if magic[1:] == ZSTD_SKIPPABLE and magic[0] & 0xF0 == 0x50:
            position = start + 8 + int.from_bytes(data[start + 4 : start + 8], "little")
        elif magic != ZSTD_MAGIC:
            raise CompressionError(f"no zstd frame begins at byte {start}")
        else:
            flags = data[start + 4]
            single_segment, content_size_flag = flags & 0x20, flags >> 6
            position += 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[flags & 3]
            position += (1 if single_segment else 0, 2, 4, 8)[content_size_flag]
            last = 0
            while not last:
                header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
                last = header & 1
                position += 3 + (1 if header >> 1 & 3 == ZSTD_REPEATED else header >> 3)
                blocks += 1
                if blocks > block_limit:
                    raise CompressionError(f"zstd has more than {BLOCK_LIMIT} blocks")
            position += 4 if flags & 0x04 else 0
    except IndexError:
        position = len(data) + 1
    if position > len(data):
        raise CompressionError("zstd ends too early")
    return position, blocks


_DECODERS: Final = {
    Codec.GZIP: _read_gzip,
    Codec.SNAPPY: _read_snappy,
    Codec.LZ4: _read_lz4,
    Codec.ZSTD: _read_zstd,
}
