"""The demo's task, as an agent runs it: ask the model, then append the answer to a shared file.

Agents load this module with ``zkcoord agent run demo --handlers zkcoord_cli.demo.work:queue``. What
they need to know stands in a JSON file whose path is in ``ZKCOORD_DEMO``.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx

from zkcoord import Lock, Queue, Retry, TaskContext
from zkcoord_cli.demo.plan import FILES, read_plan
from zkcoord_cli.demo.shared_file import Line, append

LOCK_WAIT_S = 30.0
CALL_TIMEOUT_S = 30.0


_plan = read_plan()
queue = Queue(_plan.queue, kafka=_plan.kafka, zookeeper=_plan.zookeeper, namespace=_plan.namespace)


def _client() -> httpx.AsyncClient:
    """One client per agent process; its connections are reused by all attempts."""
    headers = {}
    if _plan.api_key_file:
        key = Path(_plan.api_key_file).read_text(encoding="utf-8").strip()
        headers["Authorization"] = f"Bearer {key}"
    return httpx.AsyncClient(base_url=_plan.base_url, headers=headers, timeout=CALL_TIMEOUT_S)


# Made here, before the agent joins: loading the authorities' certificates takes a while.
_http = _client()


@queue.task(name="summarise", attempts=20, timeout=60)
async def summarise(ctx: TaskContext, number: int, name: str, text: str) -> str:
    """Summarise `text` and append the answer to the file that `number` falls to."""
    answer = await _ask(f"Summarise in one sentence.\n\n{text}")
    file = FILES[number % len(FILES)]
    asked = time.monotonic()
    if ctx.session is None:
        raise RuntimeError("this task needs the agent's session for its lock")
    async with Lock(ctx.session, f"{_plan.queue}-{file}").hold(timeout=LOCK_WAIT_S) as lease:
        line = Line(
            token=lease.token,
            task=ctx.id,
            attempt=ctx.attempt,
            agent=ctx.agent,
            name=name,
            answer=answer,
            waited=time.monotonic() - asked,
        )
        lease.check()
        append(Path(_plan.folder) / file, line)
    return answer


@queue.task(name="ponder", attempts=3, timeout=30)
async def ponder(seconds: float) -> None:
    """Occupy a slot for a moment: what the burst is made of."""
    await asyncio.sleep(seconds)


async def _ask(prompt: str) -> str:
    """One chat completion. A refusal for its rate is a retry at the time the endpoint names."""
    body = {"model": _plan.model, "messages": [{"role": "user", "content": prompt}]}
    response = await _http.post("/v1/chat/completions", json=body)
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise Retry("rate limited", delay=_retry_after(response))
    response.raise_for_status()
    return str(response.json()["choices"][0]["message"]["content"])


def _retry_after(response: httpx.Response) -> float | None:
    try:
        return min(60.0, max(0.0, float(response.headers["Retry-After"])))
    except (KeyError, ValueError):
        return None
