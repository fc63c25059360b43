"""A ZooKeeper snapshot whose folder has counted up to where counters end.

Layout of the file: ``FileSnap``, ``SnapStream`` and ``DataTree`` of Apache ZooKeeper 3.9. A node is
its path, its value, a reference to its ACL and its stat; three seals (an Adler-32 of everything
before, and "/") stand at the end: after the tree, after its digest, after the last transaction.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

_CVERSION = 36  # in the stat: behind czxid, mzxid, ctime, mtime and version
_SEAL, _DIGEST, _ZXID = 13, 20, 8


def newest(folder: Path) -> Path:
    """The newest snapshot in a server's data folder."""
    found = (folder / "data" / "version-2").glob("snapshot.*")
    return max(found, key=lambda path: int(path.suffix[1:], 16))


def set_sequence(snapshot: Path, path: str, number: int) -> None:
    """Let the next sequential child of `path` get `number`."""
    data = bytearray(snapshot.read_bytes())
    name = path.encode()
    at = data.index(struct.pack("!i", len(name)) + name) + 4 + len(name)
    (length,) = struct.unpack_from("!i", data, at)
    at += 4 + max(0, length) + 8
    struct.pack_into("!i", data, at + _CVERSION, number)
    last = len(data) - _SEAL
    for place in (last - _ZXID - _SEAL - _DIGEST - _SEAL, last - _ZXID - _SEAL, last):
        if data[place + 8 : place + _SEAL] != b"\0\0\0\1/":
            raise ValueError(f"{snapshot}: not the layout that is known")
        struct.pack_into("!q", data, place, zlib.adler32(data[:place]))
    snapshot.write_bytes(data)
