"""`--watch`: changes are told, ages are none, and an outage does not end it."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from zkcoord.errors import AccessDenied, EnsembleUnavailable, SessionLost
from zkcoord_cli import watching
from zkcoord_cli.output import Output

Look = tuple[str, int] | Exception


def watch(looks: Iterable[Look]) -> None:
    """Watch what is seen, until all is seen: then as if somebody pressed Ctrl-C."""
    seen = iter(looks)

    def look() -> tuple[str, int]:
        one = next(seen, None)
        if one is None:
            raise KeyboardInterrupt
        if isinstance(one, Exception):
            raise one
        return one

    watching.present(
        Output(),
        "zkcoord.test/1",
        look,
        lambda _, one: print(*one),
        lambda one: one[0],
        watch=True,
        as_json=False,
    )


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "EVERY_S", 0.0)


def test_what_has_not_changed_is_not_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        watch([("free", 1), ("free", 2), ("held", 1), ("held", 2), ("held", 3), ("free", 1)])
    assert capsys.readouterr().out.splitlines() == ["free 1", "held 1", "free 1"]


def test_an_outage_is_said_once_and_does_not_end_it(capsys: pytest.CaptureFixture[str]) -> None:
    away, over = EnsembleUnavailable("no answer", hint="wait"), SessionLost("it is over")
    with pytest.raises(KeyboardInterrupt):
        watch([("free", 1), away, away, ("free", 2), over, ("held", 1)])
    told = capsys.readouterr()
    assert told.out.splitlines() == ["free 1", "held 1"]
    assert told.err.splitlines() == [
        "warning: no answer; looking again",
        "warning: it is over; looking again",
    ]


def test_what_cannot_be_seen_from_the_beginning_is_an_error() -> None:
    with pytest.raises(EnsembleUnavailable):
        watch([EnsembleUnavailable("no answer"), ("free", 1)])


def test_an_outage_that_outlasts_the_time_given_is_an_error() -> None:
    seen = iter([1, 2])

    def look() -> int:
        for one in seen:
            return one
        raise EnsembleUnavailable("no answer")

    views = watching.looks(Output(), look, every=0.0, until=time.monotonic() + 0.05)
    with pytest.raises(EnsembleUnavailable):
        assert list(views) == [1, 2]


def test_what_will_not_pass_ends_it() -> None:
    with pytest.raises(AccessDenied):
        watch([("free", 1), AccessDenied("not permitted"), ("free", 2)])
