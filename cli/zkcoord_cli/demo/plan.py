"""What all processes of one demo agree on; they find it through ``ZKCOORD_DEMO``."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

FILES = ("even.jsonl", "odd.jsonl")
VARIABLE = "ZKCOORD_DEMO"


class Plan(msgspec.Struct):
    """Where things are. `folder` holds the shared files."""

    queue: str
    namespace: str
    zookeeper: str
    kafka: str
    folder: str
    base_url: str
    model: str
    api_key_file: str | None = None


def read_plan() -> Plan:
    """The plan in the JSON file that the environment names."""
    return msgspec.json.decode(Path(os.environ[VARIABLE]).read_bytes(), type=Plan)
