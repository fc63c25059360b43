"""What ZooKeeper takes as a path, a name or a value: checked before anything is sent.

A name that ZooKeeper refuses must not reach it from a retry loop, and a path over the server's
buffer only drops the link. Source: ``PathUtils.validatePath`` of Apache ZooKeeper.
"""

from __future__ import annotations

from zkcoord.errors import ConfigError, NameRefused

PATH_BYTES_MAX = 1024
NAME_BYTES_MAX = 200
LABEL_BYTES_MAX = 1000
_VERSION_MIN = -(1 << 31)


def _bad_letter(text: str) -> str | None:
    for letter in text:
        code = ord(letter)
        if (
            code < 0x20
            or 0x7F <= code <= 0x9F
            or 0xD800 <= code <= 0xF8FF
            or code >= 0xFFF0  # servers see two surrogates in what is beyond 0xFFFF
        ):
            return letter
    return None


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} {text!r}: must be a text (str), not {type(text).__name__}")


def check_path(path: str) -> str:
    """A path as ZooKeeper takes it, given back.

    Raises:
        NameRefused: it is not one.
        TypeError: it is no text.
    """
    _check_text(path, "path")
    if path == "/":
        return path
    if len(path.encode(errors="surrogatepass")) > PATH_BYTES_MAX:
        raise NameRefused(f"path {path[:40]!r}…: longer than {PATH_BYTES_MAX} bytes")
    if not path.startswith("/") or path.endswith("/"):
        raise NameRefused(f"path {path!r}: must start with a slash and not end with one")
    letter = _bad_letter(path)
    if letter is not None:
        raise NameRefused(f"path {path!r}: {letter!r} is not allowed in a path")
    if any(part in {"", ".", ".."} for part in path[1:].split("/")):
        raise NameRefused(f"path {path!r}: empty parts, '.' and '..' are not allowed")
    return path


def check_name(name: str, what: str = "name") -> str:
    """One part of a path, such as a lock's name, given back.

    Raises:
        NameRefused: it is empty, ``.`` or ``..``, has a slash or control letters, or is longer
            than 200 bytes.
        TypeError: it is no text.
    """
    _check_text(name, what)
    if not name or name in {".", ".."} or "/" in name:
        raise NameRefused(f"{what} {name!r}: must not be empty, '.' or '..' and have no slash")
    letter = _bad_letter(name)
    if letter is not None:
        raise NameRefused(f"{what} {name!r}: {letter!r} is not allowed")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise NameRefused(f"{what} {name[:40]!r}…: longer than {NAME_BYTES_MAX} bytes")
    return name


def check_label(label: str, what: str = "label") -> str:
    """What somebody calls itself in the value of a node, given back.

    Raises:
        NameRefused: it has half a letter (a lone surrogate), or is longer than 1000 bytes.
        TypeError: it is no text.
    """
    _check_text(label, what)
    try:
        size = len(label.encode())
    except UnicodeEncodeError:
        raise NameRefused(f"{what} {label[:40]!r}: it has half a letter") from None
    if size > LABEL_BYTES_MAX:
        raise NameRefused(f"{what} {label[:40]!r}…: longer than {LABEL_BYTES_MAX} bytes")
    return label


def check_data(data: bytes, what: str = "data") -> bytes:
    """The value of a node, given back; a ``bytearray`` or a ``memoryview`` as a copy.

    Raises:
        TypeError: it is no bytes: a text has to be encoded first.
    """
    given: object = data
    if isinstance(given, bytes):
        return given
    if not isinstance(given, bytearray | memoryview):
        kind = type(given).__name__
        hint = ": encode it first" if isinstance(given, str) else ""
        raise TypeError(f"{what}: must be bytes, not {kind}{hint}")
    return bytes(given)


def check_version(version: int, what: str = "version") -> int:
    """The version of a node's value, or -1 for any, given back.

    Raises:
        ConfigError: it has more than 32 bits.
        TypeError: it is no whole number.
    """
    given: object = version
    if isinstance(given, bool) or not isinstance(given, int):
        kind = type(given).__name__
        raise TypeError(f"{what} {given!r}: must be a whole number (int), not {kind}")
    if not _VERSION_MIN <= given < -_VERSION_MIN:
        raise ConfigError(f"{what}: must have 32 bits at most")
    return given


def join(folder: str, name: str) -> str:
    """A child's path."""
    return f"/{name}" if folder in {"", "/"} else f"{folder}/{name}"


def parent(path: str) -> str:
    """The folder a path is in; the root's is the root."""
    return path.rpartition("/")[0] or "/"
