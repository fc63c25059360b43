"""Records of the `results` topic: how a task ended, for whoever waits for it.

The key is the task's id, the value one JSON object::

    {"v": 1, "id": "…", "state": "succeeded", "attempt": 1, "result": 42,
     "started": 1767225600.1, "finished": 1767225600.2, "fact": "8841.3"}

`state` is ``succeeded``, ``failed``, ``dead``, ``cancelled`` or ``rejected``. `result` is there
when it succeeded; otherwise `reason` (one word), `error` and, for ``rejected``, `retry_after`
(seconds). `fact` is where the decision stands: log offset and place in the batch. Members may be
added within ``v`` 1.
A record may come more than once: readers go by `id`, the first one counts.
"""

from __future__ import annotations

import msgspec

from zkcoord.errors import DecodeError

VERSION = 1
ERROR_CHARS_MAX = 4096

_STATES = frozenset({"succeeded", "failed", "dead", "cancelled", "rejected"})
_NULL = msgspec.Raw(b"null")


class Result(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a task ended. Times are seconds since 1970; 0 when there was no attempt.

    Attributes:
        id: which task.
        state: ``succeeded``, ``failed``, ``dead``, ``cancelled`` or ``rejected``.
        attempt: the last attempt, 0 when none began.
        result: JSON of what the handler returned.
        reason: one word, as in the dead letter.
        error: what went wrong, for people.
        retry_after: seconds to wait before submitting again; above zero when rejected.
        fact: ``<log offset>.<place in the batch>``.
    """

    v: int
    id: str
    state: str
    attempt: int = 0
    result: msgspec.Raw = msgspec.Raw()
    reason: str = ""
    error: str = ""
    retry_after: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    fact: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Result).decode


def succeeded(
    task_id: str,
    *,
    attempt: int,
    result: bytes,
    started: float,
    finished: float,
    fact: str,
) -> Result:
    """The result of a task that succeeded; `result` is JSON and is copied as it is."""
    return Result(
        v=VERSION,
        id=task_id,
        state="succeeded",
        attempt=attempt,
        result=msgspec.Raw(result) if result else _NULL,
        started=started,
        finished=finished,
        fact=fact,
    )


def ended(
    task_id: str,
    state: str,
    *,
    reason: str,
    error: str,
    fact: str,
    attempt: int = 0,
    retry_after: float = 0.0,
) -> Result:
    """The result of a task that ended in `state`, anything but ``succeeded``."""
    return Result(
        v=VERSION,
        id=task_id,
        state=state,
        attempt=attempt,
        reason=reason,
        error=error[:ERROR_CHARS_MAX],
        retry_after=retry_after,
        fact=fact,
    )


def encode(result: Result) -> tuple[bytes, bytes]:
    """Key and value of the record."""
    return result.id.encode(), _encode(result)


def decode(value: bytes | None) -> Result:
    """Read a record's value.

    Raises:
        DecodeError: it is not a result of a version that is known here.
    """
    try:
        result = _decode(value or b"")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DecodeError(f"results: not a result record: {error}") from error
    if result.v != VERSION or result.state not in _STATES:
        raise DecodeError(f"results: version {result.v}, state {result.state[:20]!r} is not known")
    return result
