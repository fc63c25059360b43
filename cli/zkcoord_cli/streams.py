"""Standard input, output and error when they are closed, full, or nobody reads them any more.

A shell may start a program with any of the three closed (``>&-``). The next file or socket that is
opened would get the free number, and whoever writes to "standard output" would write into it. So
the free numbers are taken at the start by /dev/null, opened the wrong way round for standard input
and output: what reads or writes there fails, as it does for every other program.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""What a write to standard output fails with when there is no room for it, or no such stream."""

_MODES = ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDWR))


def take_free_numbers() -> None:
    """Open 0, 1 and 2 where they are closed. Before anything else is opened."""
    for number, mode in _MODES:
        try:
            os.fstat(number)
        except OSError:
            taken = os.open(os.devnull, mode)
            if taken != number:
                os.dup2(taken, number)
                os.close(taken)
            os.set_inheritable(number, True)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115 - it stays
            setattr(sys, name, stream)


def check_reader() -> None:
    """Raises BrokenPipeError when standard output is a pipe that nobody reads any more.

    For commands that wait for something to print: a write would tell, but there may be none.
    """
    try:
        number = sys.stdout.fileno()
        kind = os.fstat(number).st_mode
    except (OSError, ValueError, AttributeError):
        return
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return
    poll = select.poll()
    poll.register(number, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def abandon_stdout() -> None:
    """It cannot be written: what is still buffered must not raise again at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
