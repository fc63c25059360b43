"""A program that dies with its parent: ``python launch.py PARENT_PID PROGRAM ARGUMENT...``.

It asks the kernel for SIGKILL at its parent's death (``prctl(2)``, ``PR_SET_PDEATHSIG``; Linux),
then becomes the program: the request outlives ``exec``. Asking between fork and exec instead would
run Python code in the child of a process with threads, which may deadlock.

The kernel means the parent *thread*, so :mod:`zkcoord.local.process` forks from one that lives as
long as its process. Only cheap modules are imported: this runs before every server.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask, look whether the parent died before the asking, and become the program."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    os.execv(command[0], command)  # noqa: S606 (that is what this program is for)


if __name__ == "__main__":
    main()
