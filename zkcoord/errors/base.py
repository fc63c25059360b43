"""The root of the error tree, and the error of configuration."""

from __future__ import annotations


class ZkcoordError(Exception):
    """Base of all errors of zkcoord.

    Attributes:
        retriable: the same call may succeed later without any change.
        hint: what to do about it, one sentence, or the empty string.
    """

    retriable: bool = False
    hint: str = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.hint})" if self.hint else message


class ConfigError(ZkcoordError, ValueError):
    """Configuration that cannot work; the message lists every bad field."""
