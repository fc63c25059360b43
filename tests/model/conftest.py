"""What the tests of recipes on the model of ZooKeeper share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from zk_client import modelled


@pytest.fixture(scope="module")
def on_the_model() -> Iterator[None]:
    """Sessions of this module's tests reach the model instead of servers."""
    with modelled():
        yield
