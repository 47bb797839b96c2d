"""Codecs: what clients write is read, what is damaged is refused, and nothing grows beyond its limit."""

import gzip
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from types import ModuleType
from typing import Any

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from mutants.plant import Rule, assert_noticed

from trioka.protocol import compression
from trioka.protocol.compression import (
    CHUNK_BYTES,
    DEFAULT_LEVELS,
    LEVELS,
    MIB,
    Codec,
    CompressionError,
    DecompressedTooLarge,
    compress,
    decompress,
    default_limit,
)

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
NOISE = bytes(hash_ & 0xFF for n in range(50_000) if (hash_ := n * 2654435761 >> 7) is not None)
SAMPLES = {
    "nothing": b"",
    "one byte": b"x",
    "text": b"the quick brown fox " * 40,
    "one snappy block": bytes(32 * 1024),
    "one step": bytes(CHUNK_BYTES),
    "a step and a byte": bytes(CHUNK_BYTES + 1),
    "noise": NOISE,
    "many blocks": NOISE * 7 + bytes(300_000),
}


# --- what is written is read


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("sample", SAMPLES)
def test_what_is_compressed_comes_back(codec: Codec, sample: str) -> None:
    data = SAMPLES[sample]
    assert decompress(codec, compress(codec, data), limit=len(data)) == data


@given(codec=st.sampled_from(list(Codec)), data=st.binary(max_size=2000), repeat=st.integers(1, 200))
def test_any_bytes_come_back(codec: Codec, data: bytes, repeat: int) -> None:
    packed = compress(codec, data * repeat)
    assert decompress(codec, memoryview(packed), limit=len(data) * repeat) == data * repeat


@pytest.mark.parametrize("codec", list(LEVELS))
def test_every_level_of_kafka_is_accepted_and_no_other(codec: Codec) -> None:
    data = SAMPLES["text"]
    levels = LEVELS[codec]
    for level in [*(range(levels[0], levels[-1] + 1) if len(levels) < 20 else [levels[0], -5, 0, 1, 3, 19, 22])]:
        assert decompress(codec, compress(codec, data, level)) == data
    assert decompress(codec, compress(codec, data, DEFAULT_LEVELS[codec])) == data
    for level in (levels[0] - 1, levels[-1] + 1):
        with pytest.raises(ValueError, match=f"{codec.name.lower()} levels go from"):
            compress(codec, data, level)


def test_a_higher_level_is_smaller() -> None:
    data = NOISE[:20_000] + b"".join(b"%d," % (n * n % 1009) for n in range(20_000))
    assert len(compress(Codec.GZIP, data, 9)) < len(compress(Codec.GZIP, data, 1))
    assert len(compress(Codec.LZ4, data, 17)) < len(compress(Codec.LZ4, data))  # 9, the default, is the fast one
    assert len(compress(Codec.ZSTD, data, 19)) < len(compress(Codec.ZSTD, data, 1))


def test_snappy_has_no_level() -> None:
    with pytest.raises(ValueError, match="snappy has no compression level"):
        compress(Codec.SNAPPY, b"x", 3)


# --- as other clients write it


@pytest.mark.parametrize("sample", SAMPLES)
def test_raw_snappy_is_read(sample: str) -> None:
    data = SAMPLES[sample]
    assert decompress(Codec.SNAPPY, snappy.compress(data), limit=len(data)) == data


def test_snappy_is_written_in_the_xerial_frame() -> None:
    packed = compress(Codec.SNAPPY, SAMPLES["text"])
    assert packed.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize(
    "options",
    [
        {"store_size": True},
        {"block_checksum": True},
        {"content_checksum": True},
        {"block_linked": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
    ],
    ids=str,
)
def test_lz4_frames_with_any_option_are_read(sample: str, options: dict[str, Any]) -> None:
    data = SAMPLES[sample]
    assert decompress(Codec.LZ4, lz4.frame.compress(data, **options), limit=len(data)) == data


def test_lz4_is_written_as_java_reads_it_in_independent_blocks() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, SAMPLES["many blocks"]))
    assert not info["block_linked"]
    assert info["block_size"] == 64 * 1024


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("level", [1, 3, 19])
def test_zstd_frames_without_a_size_are_read(sample: str, checksum: bool, level: int) -> None:
    data = SAMPLES[sample]
    stream = zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=checksum).compressobj()
    assert decompress(Codec.ZSTD, stream.compress(data) + stream.flush(), limit=len(data)) == data


def zstd_frame(*blocks: bytes, window: int = 0x60) -> bytes:
    """A frame without sizes and checksums. The window's default is 4 MiB; 0x88 asks for 128 MiB."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + b"".join(blocks)


def zstd_block(size: int, kind: int, content: bytes, last: bool = False) -> bytes:
    return (last | kind << 1 | size << 3).to_bytes(3, "little") + content


def test_a_zstd_window_above_eight_mib_is_granted_to_a_frame_that_cannot_fill_it() -> None:
    small = [zstd_block(100, 1, b"x") for _ in range(63)] + [zstd_block(3, 0, b"end", last=True)]
    assert decompress(Codec.ZSTD, zstd_frame(*small, window=0x88)) == b"x" * 6300 + b"end"
    large = [zstd_block(100, 1, b"x"), *small]
    with pytest.raises(CompressionError, match="too much memory"):
        decompress(Codec.ZSTD, zstd_frame(*large, window=0x88))
    with pytest.raises(CompressionError, match="too much memory"):
        decompress(Codec.ZSTD, zstd_frame(*small, window=0x90))


# --- streams that are cut off, go on, or are damaged


def packed_samples() -> list[tuple[str, Codec, bytes, bytes]]:
    data = b"".join(b"%d " % (n * n) for n in range(300))
    stream = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compressobj()
    return [
        *((codec.name, codec, compress(codec, data), data) for codec in CODECS),
        ("raw snappy", Codec.SNAPPY, snappy.compress(data), data),
        ("zstd without a size", Codec.ZSTD, stream.compress(data) + stream.flush(), data),
        ("lz4 with checksums", Codec.LZ4, lz4.frame.compress(data, content_checksum=True, block_checksum=True), data),
    ]


@pytest.mark.parametrize(("name", "codec", "packed", "data"), packed_samples(), ids=lambda value: str(value)[:20])
def test_a_stream_cut_off_at_any_byte_is_refused(name: str, codec: Codec, packed: bytes, data: bytes) -> None:
    for end in range(len(packed)):
        if codec is Codec.ZSTD and end == 0:
            assert decompress(codec, b"") == b""  # no frame at all, which Java takes for nothing too
        elif name == "SNAPPY" and 16 <= end < 20:
            assert decompress(codec, packed[:end]) == b""  # a xerial header and no block yet
        else:
            with pytest.raises(CompressionError):
                decompress(codec, packed[:end])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_streams_in_a_row_are_read_as_one(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b"one") + compress(codec, b"") + compress(codec, b"two")) == b"onetwo"


def test_of_lz4_frames_in_a_row_the_first_is_read_as_java_does() -> None:
    assert decompress(Codec.LZ4, compress(Codec.LZ4, b"one") + compress(Codec.LZ4, b"two")) == b"one"


@pytest.mark.parametrize("rubbish", [b"x", b"xyz", bytes(8), bytes(40), b"\x1f\x8b", b"rubbish of some length"])
def test_rubbish_behind_the_end_is_treated_as_java_does(rubbish: bytes) -> None:
    data = SAMPLES["text"]
    assert decompress(Codec.GZIP, compress(Codec.GZIP, data) + rubbish) == data
    assert decompress(Codec.LZ4, compress(Codec.LZ4, data) + rubbish) == data
    with pytest.raises(CompressionError):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, data) + rubbish)
    with pytest.raises(CompressionError):
        decompress(Codec.SNAPPY, snappy.compress(data) + rubbish)
    xerial = compress(Codec.SNAPPY, data) + rubbish
    if len(rubbish) < 4:
        assert decompress(Codec.SNAPPY, xerial) == data
    else:
        with pytest.raises(CompressionError):
            decompress(Codec.SNAPPY, xerial)


def test_a_zstd_frame_to_be_skipped_is_skipped() -> None:
    skipped = b"\x5a\x2a\x4d\x18\x03\0\0\0abc"
    assert decompress(Codec.ZSTD, skipped + compress(Codec.ZSTD, b"x") + skipped) == b"x"
    with pytest.raises(CompressionError, match="too early"):
        decompress(Codec.ZSTD, skipped[:-1])


@pytest.mark.parametrize(("name", "codec", "packed", "data"), packed_samples(), ids=lambda value: str(value)[:20])
def test_a_damaged_byte_is_refused_or_harmless(name: str, codec: Codec, packed: bytes, data: bytes) -> None:
    """Not every codec has a checksum (the batch has one), but none may raise anything else, or make too much."""
    for position in range(len(packed)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(packed)
            damaged[position] ^= flip
            with suppress(CompressionError):
                assert len(decompress(codec, damaged)) <= default_limit(len(damaged))


PREFIXES = {
    Codec.GZIP: b"\x1f\x8b\x08\0\0\0\0\0\0\0",
    Codec.SNAPPY: compression.XERIAL_HEADER,
    Codec.LZ4: b"\x04\x22\x4d\x18",
    Codec.ZSTD: b"\x28\xb5\x2f\xfd",
}


@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=300), prefix=st.booleans())
@example(codec=Codec.SNAPPY, data=b"\xff\xff\xff\xff\x7f", prefix=False)
@example(codec=Codec.ZSTD, data=b"\x20\0", prefix=True)
def test_no_bytes_whatsoever_raise_anything_else(codec: Codec, data: bytes, prefix: bool) -> None:
    packed = PREFIXES[codec] + data if prefix else data
    with suppress(CompressionError):
        assert len(decompress(codec, packed)) <= default_limit(len(packed))


# --- limits


def test_the_default_limit_is_64_times_as_much_and_a_mib_up_to_128() -> None:
    assert default_limit(0) == MIB
    assert default_limit(16_384) == 2 * MIB
    assert default_limit(100 * MIB) == 128 * MIB


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_above_the_limit_is_too_large(codec: Codec) -> None:
    for data in (SAMPLES["text"], SAMPLES["one step"], SAMPLES["many blocks"]):
        packed = compress(codec, data)
        assert decompress(codec, packed, limit=len(data)) == data
        with pytest.raises(DecompressedTooLarge, match=r"limit|allowed"):
            decompress(codec, packed, limit=len(data) - 1)


def bombs() -> dict[str, tuple[Codec, bytes]]:
    """Each makes 256 MiB or says so."""
    xerial_block = snappy.compress(bytes(65_536))
    lz4_block = lz4.frame.compress(bytes(4 * MIB), block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False)[7:-4]
    rle = [zstd_block(131_072, 1, b"\0") for _ in range(2047)] + [zstd_block(131_072, 1, b"\0", last=True)]
    return {
        "gzip": (Codec.GZIP, gzip.compress(bytes(32 * MIB)) * 8),
        "snappy, xerial": (
            Codec.SNAPPY,
            compression.XERIAL_HEADER + (len(xerial_block).to_bytes(4, "big") + xerial_block) * 4096,
        ),
        "snappy, a size that lies": (Codec.SNAPPY, b"\x80\x80\x80\x80\x01" + b"x" * 100),
        "snappy, a size of 4 GiB": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 100),
        "lz4": (Codec.LZ4, bytes.fromhex("04224d186070") + b"\x73" + lz4_block * 64 + bytes(4)),
        "zstd": (Codec.ZSTD, zstd_frame(*rle)),
        "zstd, a size in the frame": (
            Codec.ZSTD,
            b"\x28\xb5\x2f\xfd\x80\x60" + (256 * MIB).to_bytes(4, "little") + b"".join(rle),
        ),
        "zstd, one segment": (
            Codec.ZSTD,
            b"\x28\xb5\x2f\xfd\xa0" + (256 * MIB).to_bytes(4, "little") + b"".join(rle),
        ),
    }


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_is_given_up_before_it_takes_memory(name: str) -> None:
    codec, packed = bombs()[name]
    tracemalloc.start()
    try:
        # One segment means a window of 256 MiB, which is refused before there is any output to count.
        with pytest.raises(CompressionError if "one segment" in name else DecompressedTooLarge):
            decompress(codec, packed, limit=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB + MIB // 8 + 4 * CHUNK_BYTES


def test_eight_kib_of_zstd_meet_the_default_limit() -> None:
    codec, packed = bombs()["zstd"]
    assert len(packed) < 8 * 1024 + 10
    with pytest.raises(DecompressedTooLarge, match=str(default_limit(len(packed)))):
        decompress(codec, packed)


def test_bombs_do_not_grow_the_process() -> None:
    """tracemalloc sees Python's memory; what the libraries take for themselves shows in the process."""
    program = """
import resource, sys
from trioka.protocol.compression import Codec, CompressionError, compress, decompress
for codec in Codec:
    decompress(codec, compress(codec, bytes(2_000_000)), limit=2_000_000)
bombs = [(Codec(int(codec)), bytes.fromhex(packed)) for codec, packed in map(str.split, sys.stdin)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for codec, packed in bombs:
    try:
        decompress(codec, packed, limit=2_000_000)
    except CompressionError:
        continue
    raise SystemExit("a bomb went off")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    lines = "".join(f"{codec:d} {packed.hex()}\n" for codec, packed in bombs().values())
    run = subprocess.run([sys.executable, "-c", program], input=lines, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 32 * 1024, "KiB that the process grew by: lz4's two blocks of 4 MiB and zstd's window of 8"


def test_empty_members_frames_and_blocks_are_counted() -> None:
    for codec, packed, what in (
        (Codec.GZIP, compress(Codec.GZIP, b""), "members"),
        (Codec.ZSTD, compress(Codec.ZSTD, b""), "frames"),
    ):
        assert decompress(codec, packed * (compression.FRAME_LIMIT - 1)) == b""
        with pytest.raises(CompressionError, match=f"more than 1024 {what}"):
            decompress(codec, packed * (compression.FRAME_LIMIT + 1))
    empty = zstd_block(0, 0, b"")
    with pytest.raises(CompressionError, match="more than 65536 blocks"):
        decompress(Codec.ZSTD, zstd_frame(*[empty] * compression.BLOCK_LIMIT, zstd_block(0, 0, b"", last=True)))
    with pytest.raises(CompressionError, match="more than 65536 blocks"):
        decompress(Codec.SNAPPY, compression.XERIAL_HEADER + b"\0\0\0\1\0" * (compression.BLOCK_LIMIT + 1))


def test_libraries_are_loaded_when_they_are_needed() -> None:
    program = (
        "import sys, trioka.protocol.batch, trioka.protocol.compression\n"
        "print(sorted({'lz4', 'snappy', 'cramjam', 'zstandard'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# --- each of these rules notices its mistake


def zstd_truncation(module: ModuleType) -> None:
    with pytest.raises(CompressionError):
        _decompress(module, Codec.ZSTD, compress(Codec.ZSTD, NOISE)[:-3000])


def zstd_trailing_rubbish(module: ModuleType) -> None:
    with pytest.raises(CompressionError):
        _decompress(module, Codec.ZSTD, compress(Codec.ZSTD, NOISE) + b"xyz")


def gzip_members(module: ModuleType) -> None:
    assert _decompress(module, Codec.GZIP, compress(Codec.GZIP, b"one") + compress(Codec.GZIP, b"two")) == b"onetwo"


def snappy_declared_size(module: ModuleType) -> None:
    codec, packed = bombs()["snappy, a size that lies"]
    with pytest.raises(CompressionError, match="allowed"):
        _decompress(module, codec, packed)


def zstd_window(module: ModuleType) -> None:
    blocks = [zstd_block(131_072, 1, b"x") for _ in range(65)] + [zstd_block(0, 0, b"", last=True)]
    with pytest.raises(CompressionError, match="memory"):
        _decompress(module, Codec.ZSTD, zstd_frame(*blocks, window=0x88), limit=16 * MIB)


def limit_is_exact(module: ModuleType) -> None:
    with pytest.raises(CompressionError, match="limit"):
        _decompress(module, Codec.LZ4, compress(Codec.LZ4, bytes(1000)), limit=999)


def _decompress(module: ModuleType, codec: Codec, data: bytes, limit: int | None = None) -> bytes:
    try:
        out: bytes = module.decompress(module.Codec(codec), data, limit)
    except module.CompressionError as error:
        raise CompressionError(*error.args) from error
    return out


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "    if position > len(data):\n",
        "    if position > len(data):\n        return len(data), blocks\n    if False:\n",
        zstd_truncation,
    ),
    (
        "if position == len(data):\n            return",
        "if len(data) - position < 9:\n            return",
        zstd_trailing_rubbish,
    ),
    ("if bytes(data[position : position + len(GZIP_MAGIC)]) != GZIP_MAGIC:", "if True:", gzip_members),
    ("if declared > max_bytes:", "if False:", snappy_declared_size),
    ("ZSTD_WINDOW_BYTES: Final = 8 * MIB", "ZSTD_WINDOW_BYTES: Final = 128 * MIB", zstd_window),
    ("if out.tell() + len(chunk) > limit:", "if out.tell() > limit:", limit_is_exact),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(compression, right, wrong, rule)
