"""Corrupts a broker's files: flips a bit, or drops the end of a write as if it had not reached the disk."""

from typing import Final

from trioka.storage.files.disk import File, OsDisk

BITS: Final = 8


def flip_bit(folder: str, topic: str, partition: int, byte: int, bit: int) -> None:
    """Flip a bit of the newest file of a partition below a log directory; a negative `byte` counts from the end."""
    if not 0 <= bit < BITS:
        raise ValueError(f"bit={bit}: a byte has the bits 0 to 7")
    file = _newest(folder, topic, partition)
    try:
        size = file.size()
        place = size + byte if byte < 0 else byte
        if not 0 <= place < size:
            raise ValueError(f"{topic}-{partition} has {size} bytes, and none at {byte}")
        file.write(place, bytes([file.read(place, 1)[0] ^ 1 << bit]))
    finally:
        file.close()


def tear(folder: str, topic: str, partition: int, lost: int) -> None:
    """Drop the last bytes of that file, as if their write had not reached the disk."""
    file = _newest(folder, topic, partition)
    try:
        size = file.size()
        if not 0 < lost <= size:
            raise ValueError(f"{topic}-{partition} has {size} bytes, of which {lost} cannot be lost")
        file.truncate(size - lost)
    finally:
        file.close()


def _newest(folder: str, topic: str, partition: int) -> File:
    disk = OsDisk()
    place = f"{folder}/{topic}-{partition}"
    if not disk.is_directory(place):
        raise ValueError(f"there is no partition {topic}-{partition}")
    return disk.open(f"{place}/{max(name for name in disk.list(place) if name.endswith('.log'))}")
