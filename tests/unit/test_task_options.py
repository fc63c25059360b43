from typing import Any

import pytest

from zkcoord.core.records import Origin, Priority, Submission
from zkcoord.core.wire import STRUCTURED_HEADERS, Draft, encode, parse
from zkcoord.errors import ConfigError
from zkcoord.queue.options import TaskOptions
from zkcoord.queue.task import changed

BAD: list[tuple[str, dict[str, Any]]] = [
    ("priority", {"priority": "high"}),
    ("priority", {"priority": 1}),
    ("deadline", {"deadline": 0}),
    ("deadline", {"deadline": float("nan")}),
    ("deadline", {"deadline": float("inf")}),
    ("deadline", {"deadline": "30"}),
    ("deadline", {"deadline": True}),
    ("delay", {"delay": -1}),
    ("delay: must be below deadline", {"delay": 30, "deadline": 30}),
    (r"timeout: must be a number within .* seconds, not '5' \(str\)$", {"timeout": "5"}),
    (r"attempts: .*, not '5' \(str\)$", {"attempts": "5"}),
    (r"deadline: .*, not 'True' \(bool\)", {"deadline": True}),
    ("timeout", {"timeout": 10**400}),
    ("timeout", {"timeout": 0}),
    ("timeout", {"timeout": 8 * 86400}),
    ("attempts", {"attempts": 0}),
    ("attempts", {"attempts": 1001}),
    ("attempts", {"attempts": 2.0}),
    ("attempts", {"attempts": True}),
    ("retry", {"retry": -0.1}),
    ("requires", {"requires": "gpu"}),
    ("requires", {"requires": ("a,b",)}),
    ("requires", {"requires": (" a",)}),
    ("requires", {"requires": ("",)}),
    ("requires", {"requires": (7,)}),
    ("requires", {"requires": tuple(map(str, range(33)))}),
    ("tenant", {"tenant": ""}),
    ("tenant", {"tenant": "t" * 101}),
    ("tenant", {"tenant": 7}),
    ("key", {"key": "k" * 4097}),
    ("key", {"key": b"k"}),
    ("key", {"key": "\ud800"}),
    ("id", {"id": ""}),
    ("id", {"id": "#position"}),
    ("id", {"id": "i" * 201}),
    ("id", {"id": "a\nb"}),
    ("id", {"id": "\ud800"}),
    ("id", {"id": 7}),
    ("trace", {"trace": "garbage"}),
    ("trace", {"trace": 7}),
    ("result", {"result": 1}),
]


@pytest.mark.parametrize(("name", "options"), BAD, ids=lambda value: str(value)[:40])
def test_bad_option(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^task options: {name}"):
        TaskOptions(**options)


def test_all_bad_options_are_listed_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        TaskOptions(attempts=0, timeout=-1, tenant="", id="#")
    for name in ("attempts", "timeout", "tenant", "id"):
        assert f"{name}:" in str(caught.value)


def test_changes_are_validated_together_with_what_stands() -> None:
    base = changed(TaskOptions(), {"delay": 10})
    assert changed(base, {"deadline": 20}).delay == 10
    with pytest.raises(ConfigError, match="below deadline"):
        changed(base, {"deadline": 5})
    assert changed(base, {"delay": None, "deadline": 5}).delay is None


def test_an_unknown_option_is_named_with_the_known() -> None:
    with pytest.raises(ConfigError, match=r"unknown: colour .*known are priority"):
        changed(TaskOptions(), {"colour": "red"})  # type: ignore[typeddict-unknown-key]


def test_requires_takes_any_collection() -> None:
    given: Any = {"requires": ["a", "b"]}
    assert changed(TaskOptions(), given).requires == ("a", "b")


@pytest.mark.parametrize("priority", list(Priority))
def test_extreme_options_survive_the_wire(priority: Priority) -> None:
    """What passes here is read by every parser: nothing accepted turns out malformed later."""
    for options in (
        TaskOptions(
            id="ü" * 100,
            tenant="t" * 100,
            requires=tuple(f"cap={n}" for n in range(32)),
            timeout=7 * 86400,
            attempts=1000,
            retry=30 * 86400,
            deadline=400 * 86400,
            delay=399 * 86400,
        ),
        TaskOptions(timeout=0.001, retry=1e-9, attempts=1),
    ):
        now = 1_767_225_600.0
        value = encode(
            Draft(
                id=options.id or "i",
                task="t",
                tenant=options.tenant,
                requires=options.requires,
                timeout=options.timeout,
                attempts=options.attempts,
                delay=options.retry,
                expires_at=None if options.deadline is None else now + options.deadline,
                not_before=None if options.delay is None else now + options.delay,
            )
        )
        read = parse(Origin(priority, 0, 0, now), None, value, STRUCTURED_HEADERS)
        assert isinstance(read, Submission), read
        assert (read.timeout, read.attempts, read.delay) == (
            options.timeout,
            options.attempts,
            options.retry,
        )
        assert read.requires == options.requires
