"""What a submission may say besides its arguments."""

from __future__ import annotations

import msgspec

from zkcoord.core import attributes
from zkcoord.core.attributes import LIMITS, Unreadable
from zkcoord.core.records import Priority
from zkcoord.errors import ConfigError
from zkcoord.zk.amounts import is_number


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a submission; None leaves a setting to the queue. Times are seconds.

    Attributes:
        priority: the class.
        deadline: from the submission; a task that has not ended by then is dead (``expired``).
        delay: from the submission; it does not start earlier.
        timeout: limit of one attempt.
        attempts: how many attempts it gets.
        retry: base delay before the second attempt; it doubles from attempt to attempt, with
            full jitter, as the queue's retry policy says.
        requires: capabilities an agent must have.
        tenant: on whose behalf; kept with the task and shown, it does not change the order.
        key: the record's key; kept with the task, it does not change the order.
        id: the task's id; None makes a new one. Submitting an id again while its task lives
            changes nothing, so a submission whose outcome is unknown can be repeated.
        trace: W3C traceparent.
        result: whether the ticket can wait for the result. False saves the work for it.

    Raises:
        ConfigError: lists every bad option.
    """

    priority: Priority = Priority.NORMAL
    deadline: float | None = None
    delay: float | None = None
    timeout: float | None = None
    attempts: int | None = None
    retry: float | None = None
    requires: tuple[str, ...] = ()
    tenant: str | None = None
    key: str | None = None
    id: str | None = None
    trace: str | None = None
    result: bool = True

    def __post_init__(self) -> None:
        broken = [text for holds, text in self._numbers() if not holds]
        broken += [text for text in self._names() if text]
        if broken:
            raise ConfigError("task options: " + "; ".join(broken))

    def _numbers(self) -> tuple[tuple[bool, str], ...]:
        deadline, delay = self.deadline, self.delay
        return (
            (
                isinstance(self.priority, Priority),
                "priority: must be a Priority, such as Priority.HIGH",
            ),
            _seconds("deadline", deadline, 0.001, LIMITS.horizon_s),
            _seconds("delay", delay, 0, LIMITS.horizon_s - 86400),
            (
                deadline is None
                or delay is None
                or not _comparable(delay, deadline)
                or delay < deadline,
                "delay: must be below deadline",
            ),
            _seconds("timeout", self.timeout, 0.001, LIMITS.timeout_s_max),
            (
                self.attempts is None
                or (type(self.attempts) is int and 1 <= self.attempts <= LIMITS.attempts_max),
                f"attempts: must be a whole number within 1 and {LIMITS.attempts_max}"
                + _other(self.attempts),
            ),
            _seconds("retry", self.retry, 0, LIMITS.delay_s_max),
            (isinstance(self.result, bool), "result: must be True or False"),
        )

    def _names(self) -> tuple[str, ...]:
        return (
            _broken_id(self.id),
            _broken_label("tenant", self.tenant),
            _broken_requires(self.requires),
            _broken_key(self.key),
            ""
            if self.trace is None
            or (isinstance(self.trace, str) and attributes.trace(self.trace) is not None)
            else "trace: not a W3C traceparent",
        )


def _comparable(*values: object) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _seconds(name: str, value: object, low: float, high: float) -> tuple[bool, str]:
    """Whether an option is such a number or None, and what to say when it is not."""
    holds = value is None or (is_number(value) and low <= value <= high)
    text = f"{name}: must be a number within {low:g} and {high:g} seconds{_other(value)}"
    return holds, text


def _other(value: object) -> str:
    """For an error's text: what was given instead of a number."""
    if is_number(value):
        return ""
    return f", not {str(value)[:40]!r} ({type(value).__name__})"


def _broken_id(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        return "id: must be a text that is not empty"
    try:
        attributes.identifier(value, LIMITS)
        value.encode()
    except (Unreadable, UnicodeEncodeError) as error:
        return str(error) if isinstance(error, Unreadable) else "id: holds a lone surrogate"
    return ""


def _broken_label(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return f"{name}: must be a text"
    try:
        attributes.label(name, value, LIMITS.tenant_chars_max)
    except Unreadable as error:
        return error.detail
    return ""


def _broken_requires(value: object) -> str:
    if not isinstance(value, tuple):
        return "requires: must be a tuple of texts"
    if len(value) > LIMITS.requires_max:
        return f"requires: at most {LIMITS.requires_max} capabilities"
    for part in value:
        broken = _broken_label("requires", part) or (
            "requires: must not hold a comma" if "," in part or part.strip() != part else ""
        )
        if broken:
            return broken
    return ""


def _broken_key(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return "key: must be a text"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "key: holds a lone surrogate"
    return "" if size <= LIMITS.key_bytes_max else f"key: longer than {LIMITS.key_bytes_max} bytes"
