"""Parses and prints points in time and lengths of time.

30s   1h30m   7d   250ms   P7DT12H           lengths; the last is ISO 8601, as Kafka's own scripts require
2026-11-16   2026-11-16T08:30:00.500+01:00   points; without a zone they are UTC, as in Kafka's scripts
-1h   1700000000000                          relative to now; milliseconds since 1970
"""

import re
from datetime import UTC, datetime
from typing import Final

MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_ISO: Final = re.compile(
    r"([+-]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def parse_duration_ms(text: str) -> int:
    """A length in milliseconds. A ValueError is one sentence."""
    plain = text.strip().lower()
    parts = _PART.findall(plain)
    if parts and "".join(map("".join, parts)) == plain:
        return round(sum(float(number) * MS[unit] for number, unit in parts))
    iso = _ISO.fullmatch(plain)
    if iso and any(iso.groups()[1:]):
        total = sum(float(number or 0) * MS[unit] for number, unit in zip(iso.groups()[1:], "wdhms", strict=True))
        return round(-total if iso[1] == "-" else total)
    raise ValueError(f"'{text}' is no length of time; 30s, 1h30m, 7d or P7DT12H is one")


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since 1970. A ValueError is one sentence."""
    plain = text.strip()
    if plain.isdigit() and len(plain) > 4:
        return int(plain)
    if plain.startswith("-"):
        return now_ms - parse_duration_ms(plain[1:])
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        raise ValueError(f"'{text}' is no point in time; 2026-11-16, 2026-11-16T08:30:00 or -1h is one") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def show_moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"


def show_duration(ms: int) -> str:
    """Its two largest parts: 4m10s, 3d4h."""
    if ms < 0:
        return f"-{show_duration(-ms)}"
    if ms < MS["s"]:
        return f"{ms}ms"
    shown: list[str] = []
    rest = ms
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, MS[unit])
        if count or shown:
            shown.append(f"{count}{unit}" if count else "")
        if len(shown) == 2:
            break
    return "".join(shown)


def show_bytes(size: int) -> str:
    value = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
