"""What stands in a counter's node, and what it tells about a write whose answer was lost.

The value is ASCII: ``<number> <version> <marks>``.

- *number*: the count;
- *version*: the version that the node has with this value. A value that somebody else wrote over it
  has another one, or none, and its marks say nothing;
- *marks*: eight letters for each of the last writes, newest first. The write that made version
  ``version - i`` has the mark at ``8 * i``.

A write names the version it replaces, so it can only ever have made the next one. Whether it did is
seen from the mark of that version, as long as no more than :data:`MARKS_MAX` writes came after.
A plain number is a value too, so that a counter can be set by hand.

ZooKeeper's version is a signed 32-bit counter, and -1 asks for any version: before it wraps the
node is replaced by a new one, whose versions begin at 0 again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zkcoord.errors import NodeForeign

MARKS_MAX = 64
MARK_LETTERS = 8
VERSION_MAX = 2**31 - 2
NUMBER_MIN, NUMBER_MAX = -(2**63), 2**63 - 1

_VALUE = re.compile(rb"(-?[0-9]{1,19})(?: ([0-9]{1,10}) ([A-Za-z0-9_-]*))?\s*")


class Tally(NamedTuple):
    """A counter's value as it was read.

    Attributes:
        number: the count. version: the node's, -1 when there is no node.
        marks: of the latest writes as far as they can be trusted, newest first.
    """

    number: int
    version: int
    marks: str = ""

    @property
    def missing(self) -> bool:
        """Whether there is no node: it counts as 0, and the first write creates it."""
        return self.version < 0

    @property
    def worn(self) -> bool:
        """Whether the next write must replace the node."""
        return self.version >= VERSION_MAX

    @property
    def next_version(self) -> int:
        """What version the next write makes."""
        return 0 if self.worn else self.version + 1

    def wrote(self, version: int, mark: str) -> bool | None:
        """Whether the write with this mark made `version`; None when it cannot be known."""
        behind = self.version - version
        if behind < 0:  # the node is not the one that was written to
            return None
        found = self.marks[behind * MARK_LETTERS : (behind + 1) * MARK_LETTERS]
        return found == mark if found else None

    def replaced(self, number: int, mark: str) -> bytes:
        """The node's next value."""
        marks = mark if self.worn else (mark + self.marks)[: MARKS_MAX * MARK_LETTERS]
        return f"{number} {self.next_version} {marks}".encode()


MISSING = Tally(0, -1)


def read_tally(path: str, value: bytes, version: int) -> Tally:
    """A node's value.

    Raises:
        NodeForeign: it is no number of 64 bits.
    """
    found = _VALUE.fullmatch(value)
    number = 0 if found is None else int(found[1])
    if found is None or not fits(number):
        raise NodeForeign(
            f"counter {path}: the node holds {value[:40]!r}, not a count",
            hint="another recipe or program uses this path: choose another one",
        )
    trusted = found[2] is not None and int(found[2]) == version
    return Tally(number, version, found[3].decode() if trusted else "")


def fits(number: int) -> bool:
    """Whether a count fits in 64 bits with sign."""
    return NUMBER_MIN <= number <= NUMBER_MAX
