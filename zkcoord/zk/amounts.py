"""What counts as a number: True and False do not, though Python takes them for 1 and 0."""

from __future__ import annotations

from typing import TypeGuard


def is_whole(given: object) -> TypeGuard[int]:
    """Whether it is a whole number."""
    return isinstance(given, int) and not isinstance(given, bool)


def is_number(given: object) -> TypeGuard[int | float]:
    """Whether it is a number, whole or not."""
    return isinstance(given, int | float) and not isinstance(given, bool)
