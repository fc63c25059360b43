"""Every exit status of `zkcoord`, named once; docs/reference/exit-codes.md is the same table.

`lock run` ends with its command's own status; its own ends have numbers that commands rarely use,
like those of `timeout` and `env`.
"""

from __future__ import annotations

from enum import IntEnum

from zkcoord import errors


class ExitCode(IntEnum):
    """What the shell sees; the comment behind each is its meaning in the documentation."""

    OK = 0  # it worked
    UNEXPECTED = 1  # an error that zkcoord did not expect; the message says how to report it
    USAGE = 2  # the command line makes no sense
    CONFIGURATION = 3  # settings, a topic or a queue are configured in a way that cannot work
    CANNOT_CONNECT = 4  # ZooKeeper, Kafka or the local stack do not answer
    NOT_FOUND = 5  # the thing named is not there, or a task that is to be cancelled has ended
    TIMED_OUT = 6  # it did not happen in time: not acquired, no result yet, outcome unknown
    LOST = 7  # a lease, a session, leadership or records were lost
    REFUSED = 8  # not allowed, too large, there already, or it needs --yes
    TASK_FAILED = 9  # the task ended without success
    REJECTED = 10  # nothing was done: not now, or its condition no longer holds; look, try again
    FAULTS_FOUND = 11  # doctor found something that does not work
    INTERRUPTED = 130  # Ctrl-C
    READER_GONE = 141  # whoever read the output went away before its end, as in `| head -1`


class LockRunCode(IntEnum):
    """What `lock run` adds to its command's own status."""

    REVOKED = 122  # somebody asked to let go, and the command ended after that
    LEASE_LOST = 123  # the lease was lost and the command was stopped before it ran out
    NOT_ACQUIRED = 124  # the lock was not granted in time; the command did not run
    FAILED = 125  # zkcoord itself failed; the command did not run
    CANNOT_EXECUTE = 126  # the command was found but cannot be executed
    COMMAND_NOT_FOUND = 127  # there is no such command


_BY_ERROR: dict[type[BaseException], ExitCode] = {
    errors.ConfigError: ExitCode.CONFIGURATION,
    errors.EnsembleUnavailable: ExitCode.CANNOT_CONNECT,
    errors.SessionLost: ExitCode.LOST,
    errors.SessionClosed: ExitCode.LOST,
    errors.AcquireTimeout: ExitCode.TIMED_OUT,
    errors.LeaseLost: ExitCode.LOST,
    errors.NotRevocable: ExitCode.REFUSED,
    errors.NotOwner: ExitCode.REFUSED,
    errors.ReentryRefused: ExitCode.REFUSED,
    errors.VersionConflict: ExitCode.REJECTED,
    errors.NodeMissing: ExitCode.NOT_FOUND,
    errors.NodeExists: ExitCode.REFUSED,
    errors.NodeForeign: ExitCode.REFUSED,
    errors.OutcomeUnknown: ExitCode.TIMED_OUT,
    errors.WaitTimeout: ExitCode.TIMED_OUT,
    errors.CacheFull: ExitCode.REFUSED,
    errors.CandidateMissing: ExitCode.NOT_FOUND,
    errors.LimitMismatch: ExitCode.CONFIGURATION,
    errors.LimitExceeded: ExitCode.REFUSED,
    errors.NameRefused: ExitCode.USAGE,
    errors.SessionFull: ExitCode.REFUSED,
    errors.AccessDenied: ExitCode.REFUSED,
    errors.BrokerUnavailable: ExitCode.CANNOT_CONNECT,
    errors.PublishFailed: ExitCode.REFUSED,
    errors.PublishTimeout: ExitCode.TIMED_OUT,
    errors.BufferFull: ExitCode.REJECTED,
    errors.TopicMismatch: ExitCode.CONFIGURATION,
    errors.RecordsTrimmed: ExitCode.LOST,
    errors.StreamDenied: ExitCode.REFUSED,
    errors.StaleTerm: ExitCode.LOST,
    errors.Deposed: ExitCode.LOST,
    errors.Rejected: ExitCode.REJECTED,
    errors.ResultTimeout: ExitCode.TIMED_OUT,
    errors.TaskFailed: ExitCode.TASK_FAILED,
    errors.StackError: ExitCode.CANNOT_CONNECT,
    errors.StackMissing: ExitCode.NOT_FOUND,
}


def code_of(error: BaseException) -> ExitCode:
    """The exit status for `error`: that of its nearest named class, else 1."""
    for kind in type(error).__mro__:
        if kind in _BY_ERROR:
            return _BY_ERROR[kind]
    return ExitCode.UNEXPECTED
