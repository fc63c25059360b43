"""The log of long-running commands: on stderr, text for a terminal, JSON lines otherwise."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from datetime import UTC, datetime
from typing import Any

CLIENT_LOG = "zkcoord.kafka"
COMMAND = "zkcoord command"


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, message, and error when there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        document = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["error"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False)


class Plain(logging.Formatter):
    """The line as the command itself would say it."""

    def format(self, record: logging.LogRecord) -> str:
        """Level and message."""
        return f"{record.levelname.lower()}: {super().format(record)}"


class _Stderr(logging.StreamHandler[Any]):
    """Writes to what standard error is at that moment."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        """Standard error."""
        return sys.stderr

    @stream.setter
    def stream(self, _: Any) -> None:
        """Nothing to set."""


def _not_the_clients(record: logging.LogRecord) -> bool:
    """Whether a line is ours: the Kafka client's are raw, and an error has their cause already."""
    return not record.name.startswith(CLIENT_LOG)


def configure_command(verbose: int) -> None:
    """The log of a command: warnings; from `-vv` all of INFO, the Kafka client's lines too."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = _Stderr()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    if verbose < 2:
        handler.setFormatter(Plain("%(message)s"))
        handler.addFilter(_not_the_clients)
    handler.set_name(COMMAND)
    root.addHandler(handler)
    root.setLevel(
        logging.DEBUG if verbose > 2 else logging.INFO if verbose > 1 else logging.WARNING
    )


def configure(verbose: int = 0) -> None:
    """The log of a service: INFO and above, with `-v` DEBUG, unless the program has one already.

    ``ZKCOORD_LOG_FORMAT`` is ``text`` or ``json``; ``ZKCOORD_LOG_LEVEL`` a level's name.
    """
    root = logging.getLogger()
    for standing in [one for one in root.handlers if one.get_name() == COMMAND]:
        root.removeHandler(standing)
    if root.handlers:
        return
    handler = _Stderr()
    style = os.environ.get("ZKCOORD_LOG_FORMAT") or ("text" if sys.stderr.isatty() else "json")
    if style == "json":
        handler.setFormatter(JsonLines())
    else:
        formatter = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s  %(message)s")
        formatter.converter = time.localtime
        handler.setFormatter(formatter)
    root.addHandler(handler)
    named = os.environ.get("ZKCOORD_LOG_LEVEL", "INFO").upper()
    level = logging.getLevelNamesMapping().get(named, logging.INFO)
    root.setLevel(min(level, logging.DEBUG) if verbose else level)
    for foreign in ("asyncio", "kazoo"):
        logging.getLogger(foreign).setLevel(logging.WARNING)
