"""The log of long-running commands: on stderr, text for a terminal, JSON lines otherwise."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from datetime import UTC, datetime


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


def configure() -> None:
    """Log INFO and above, unless `-v` has configured the log already.

    ``ZKCOORD_LOG_FORMAT`` is ``text`` or ``json``; ``ZKCOORD_LOG_LEVEL`` a level's name.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    style = os.environ.get("ZKCOORD_LOG_FORMAT") or ("text" if sys.stderr.isatty() else "json")
    if style == "json":
        handler.setFormatter(JsonLines())
    else:
        formatter = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s  %(message)s")
        formatter.converter = time.localtime
        handler.setFormatter(formatter)
    root.addHandler(handler)
    level = os.environ.get("ZKCOORD_LOG_LEVEL", "INFO").upper()
    root.setLevel(logging.getLevelNamesMapping().get(level, logging.INFO))
    logging.getLogger("kazoo").setLevel(logging.WARNING)
