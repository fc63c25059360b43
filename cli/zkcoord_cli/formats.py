"""How durations, moments and bytes look to people. Scripts read `--json`, which has the numbers."""

from __future__ import annotations

import time

_UNITS = ((86400.0, "d", 3600.0, "h"), (3600.0, "h", 60.0, "m"), (60.0, "m", 1.0, "s"))


def duration(seconds: float | None) -> str:
    """``4m12s``, ``1.5s``, ``12ms``; ``-`` for None."""
    if seconds is None:
        return "-"
    if seconds >= 59.5:
        seconds = float(round(seconds))
    for size, unit, next_size, next_unit in _UNITS:
        if seconds >= size:
            whole = int(seconds // size)
            rest = int((seconds - whole * size) // next_size)
            return f"{whole}{unit}{rest:02d}{next_unit}"
    if seconds >= 9.95:
        return f"{seconds:.0f}s"
    if seconds >= 0.9995:
        return f"{seconds:.1f}s"
    return f"{seconds * 1000:.0f}ms" if seconds > 0 else "0s"


def moment(at: float) -> str:
    """Local date and time to the millisecond; ``-`` when unknown."""
    if not at:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) + f".{int(at * 1000) % 1000:03d}"


def ago(at: float) -> str:
    """How long ago `at` was; ``-`` when unknown."""
    return duration(max(0.0, time.time() - at)) if at else "-"


def rate(per_second: float) -> str:
    """``12.5``, ``1200``."""
    return f"{per_second:.0f}" if per_second >= 100 else f"{per_second:.1f}"


def share(fraction: float) -> str:
    """``0.63``, as thresholds are written."""
    return f"{fraction:.2f}"


def asker() -> str:
    """Who types this command, for records and for those who are asked: ``user@host``."""
    import getpass
    import os
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def counted(number: int, one: str, more: str = "") -> str:
    """``1 reader``, ``3 readers``; `more` is the plural where an s does not make it."""
    return f"{number} {one if number == 1 else more or one + 's'}"


def text_of(data: bytes | None) -> str:
    """Bytes for a person: UTF-8 with what is none escaped; ``-`` for null."""
    return "-" if data is None else data.decode("utf-8", "backslashreplace")


def json_data(data: bytes) -> dict[str, str]:
    """Bytes for JSON: as ``text`` where they are text, else as ``base64``."""
    import base64

    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
