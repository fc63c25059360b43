"""Errors of the local stack."""

from __future__ import annotations

from zkcoord.errors.base import ZkcoordError


class StackError(ZkcoordError):
    """The local stack cannot start, or was not found."""


class StackMissing(StackError, LookupError):
    """There is no local stack of that name, or it has no server of that name."""
