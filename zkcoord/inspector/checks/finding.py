"""One line of a doctor's report."""

from __future__ import annotations

import msgspec

OK = "ok"
WARN = "warn"
FAIL = "FAIL"
SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a check saw.

    Attributes:
        status: ``ok``, ``warn`` (works, but will hurt), ``FAIL`` (does not work) or ``skipped``.
        check: what was looked at, a few words that stay the same.
        observed: what was seen, with figures.
        advice: what to do about it; empty when nothing needs doing.
    """

    status: str
    check: str
    observed: str
    advice: str = ""
