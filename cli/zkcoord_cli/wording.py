"""Errors of the library in the words of the command line: flags and commands, not arguments."""

from __future__ import annotations

from zkcoord.errors import (
    ConfigError,
    LimitExceeded,
    LimitMismatch,
    NodeForeign,
    NotRevocable,
    ZkcoordError,
)


def in_flags(error: ZkcoordError) -> tuple[str, str]:
    """What happened, and what to do about it, for who typed a command."""
    said = str(error.args[0]) if error.args else type(error).__name__
    match error:
        case LimitMismatch(stored=None):
            if isinstance(error.given, tuple):
                return said, error.hint
            return (
                f"--permits 0: {error.name} has no number of permits yet",
                "say how many there are: --permits N",
            )
        case LimitMismatch(given=int()):
            return (
                f"--permits {error.given}: {error.name} has {error.stored}",
                (
                    f"--permits {error.stored}, or --permits 0 for as many as it has; "
                    "zkcoord semaphore resize changes it"
                ),
            )
        case LimitExceeded() if error.asked > error.limit:
            return (
                f"--weight {error.asked}: {error.name} has only {error.limit} permits",
                f"--weight {error.limit} at most; zkcoord semaphore resize changes it",
            )
        case LimitExceeded():
            return said, "wait until they are released, or --force: nobody gets more until it fits"
        case NotRevocable() if said.startswith("lock "):
            return (
                said,
                (
                    "`lock run` listens, and programs that acquire with on_revoke; "
                    "`zkcoord lock break` does not ask"
                ),
            )
        case NodeForeign() if "root" in error.hint:
            return said, "use another name"
        case ConfigError() if said.startswith("Session: hosts "):
            return "zookeeper " + said.removeprefix("Session: hosts "), error.hint
        case _:
            return said, error.hint
