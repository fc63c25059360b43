"""Handlers that fork: the child ends where it leaves the handler, the agent goes on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def forked(handler: str) -> tuple[list[str], str]:
    """What the program printed, and what stood on stderr."""
    done = subprocess.run(
        # From 3.12 on Python warns of any fork in a process with threads.
        [sys.executable, "-W", "ignore", "-m", "tests.unit.forking", handler],
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # so that a doubled buffer would be seen
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("handler", ["sync_returns", "async_returns", "async_returns_late"])
def test_a_child_that_returns_ends_with_status_0(handler: str) -> None:
    assert forked(handler) == (["before the fork", '0 "second"'], "")


@pytest.mark.parametrize("handler", ["sync_raises", "async_raises"])
def test_a_child_that_raises_says_so_and_ends_with_status_1(handler: str) -> None:
    lines, talk = forked(handler)
    assert lines == ["before the fork", '1 "second"']
    assert "forked by a handler, ends with an error" in talk
    assert "ValueError: the child's" in talk
    assert talk.count("Traceback") == 1


@pytest.mark.parametrize("handler", ["sync_exits", "async_exits"])
def test_a_child_that_exits_has_its_status_and_its_output(handler: str) -> None:
    lines = ["before the fork", "said by the child", '3 "second"']
    assert forked(handler) == (lines, "")


@pytest.mark.parametrize("handler", ["async_waits", "async_waits_late", "async_subtask_returns"])
def test_a_child_that_comes_back_to_the_event_loop_ends_with_status_1(handler: str) -> None:
    lines, talk = forked(handler)
    assert lines == ["before the fork", '1 "second"']
    assert "forked by a handler" in talk
