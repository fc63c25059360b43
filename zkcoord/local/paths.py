"""Where the local stack keeps files of a user: caches, running stacks, data folders."""

from __future__ import annotations

import os
from pathlib import Path


def _home(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification says that relative values are to be ignored.
    base = Path(value) if value and Path(value).is_absolute() else Path.home() / fallback
    return base / "zkcoord"


def cache_dir() -> Path:
    """Jars and other files that can be fetched again: ``$XDG_CACHE_HOME/zkcoord``."""
    return _home("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """What is known of running stacks: ``$XDG_STATE_HOME/zkcoord/stacks``."""
    return _home("XDG_STATE_HOME", ".local/state") / "stacks"


def data_dir(name: str) -> Path:
    """The default data folder of a stack: ``$XDG_DATA_HOME/zkcoord/stacks/<name>``."""
    return _home("XDG_DATA_HOME", ".local/share") / "stacks" / name
