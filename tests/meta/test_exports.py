"""The front door: what `import zkcoord` gives, and what it must not cost."""

from __future__ import annotations

import subprocess
import sys

import zkcoord


def test_all_is_sorted_and_importable() -> None:
    names = list(zkcoord.__all__)
    assert names == sorted(names)
    assert len(set(names)) == len(names)
    for name in names:
        assert getattr(zkcoord, name) is not None


def test_the_public_names_are_there() -> None:
    promised = {
        "Agent", "Discard", "Election", "Lease", "Lock", "Membership", "Priority", "Queue", "Retry",
        "Scheduler", "Session", "TaskContext", "ZkcoordError",
    }  # fmt: skip
    assert promised <= set(zkcoord.__all__)


def test_every_error_is_exported() -> None:
    from zkcoord import errors

    kinds = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
    assert kinds <= set(zkcoord.__all__) | {"TaskSignal"}


def test_dir_lists_what_there_is() -> None:
    assert set(zkcoord.__all__) <= set(dir(zkcoord))


def test_unknown_names_are_attribute_errors() -> None:
    assert not hasattr(zkcoord, "NoSuchThing")


def test_importing_costs_no_client() -> None:
    program = (
        "import sys, zkcoord\n"
        "heavy = ('kazoo', 'confluent_kafka', 'rich', 'click', 'httpx')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "[]"
