"""Errors of a command that was told `--json`: one JSON object on stderr, when it ends.

Its ``error`` is the class of the error (docs/reference/errors.md), or the name of the exit status
(docs/reference/exit-codes.md) where no error was raised.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from zkcoord_cli.exit_codes import ExitCode, LockRunCode

SCHEMA = "zkcoord.error/1"


class Problems:
    """What went wrong in the one command of this process, kept until its status is known."""

    def __init__(self) -> None:
        self._messages: list[str] = []
        self.end()

    def begin(self) -> None:
        """A command begins, whose problems are told when it ends."""
        self.end()
        self._running = True

    def end(self) -> None:
        """It has ended: nothing is kept any more."""
        self.as_json = self._running = False
        self._kind = self._hint = ""
        self._messages.clear()

    def want_json(self) -> None:
        """The command that runs was told to print JSON."""
        self.as_json = self._running

    def add(self, message: str, hint: str = "", kind: str = "") -> None:
        """One more; of several the first hint and the first kind count."""
        self._messages.append(message)
        self._hint = self._hint or hint
        self._kind = self._kind or kind

    def document(self, status: int) -> str:
        """The object in one line, in ASCII; empty when nothing went wrong."""
        if not self._messages:
            return ""
        return json.dumps({
            "schema": SCHEMA,
            "error": self._kind or _name_of(status),
            "message": "\n".join(self._messages),
            "hint": self._hint,
            "status": status,
        })  # fmt: skip


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line that cannot be read asks for JSON, or the environment does."""
    options = list(words)
    if "--" in options:
        options = options[: options.index("--")]
    variable = os.environ.get("ZKCOORD_JSON", "").lower()
    return "--json" in options or variable in {"1", "true", "t", "yes", "y", "on"}


def _name_of(status: int) -> str:
    for kind in (ExitCode, LockRunCode):
        if status in {*kind}:
            return kind(status).name
    return ExitCode.UNEXPECTED.name


PROBLEMS = Problems()
"""Of the command that runs: a process runs one at a time."""
