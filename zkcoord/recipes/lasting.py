"""Nodes in a recipe's folder that are no contenders and outlast them."""

from __future__ import annotations

KEPT = "kept"
"""Keeps a folder whose value was changed by hand: a resized limit, slots added or drained."""

MARK = "held"
"""Says who holds a lock with a delay; left by who did not release."""

SLOTS = "slots"
"""The folder of a pool's taken slots."""
