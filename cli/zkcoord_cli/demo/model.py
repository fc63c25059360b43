"""A small OpenAI-compatible endpoint with realistic manners, for machines without a real one.

It answers ``POST /v1/chat/completions`` after a seeded, log-normal latency (mean about 120 ms with
a long tail) and enforces a request rate: what comes too fast gets 429 with a Retry-After that is
true. Run as ``python -m zkcoord_cli.demo.model --port 0``; it prints the port it listens on.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import math
import random
import re
import socket
import time
from dataclasses import dataclass, field

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

MODEL = "demo-summariser"
LATENCY_MEAN_S = 0.120
LATENCY_SIGMA = 0.45
LATENCY_MAX_S = 2.0
BODY_BYTES_MAX = 256 * 1024


class _Message(msgspec.Struct):
    role: str
    content: str


class _Chat(msgspec.Struct):
    model: str
    messages: list[_Message]
    max_tokens: int = 64


@dataclass(slots=True)
class RateLimit:
    """Generic cell rate algorithm: `rate` requests a second, bursts of `burst`.

    Source: ITU-T I.371 (GCRA, virtual scheduling form).
    """

    rate: float
    burst: int
    _tat: float = field(default=0.0, init=False)

    def admit(self, now: float) -> float:
        """Take one request; 0.0 when admitted, else the seconds until the next would be."""
        step = 1.0 / self.rate
        tat = max(self._tat, now)
        ahead = tat - now
        if ahead > step * (self.burst - 1):
            return ahead - step * (self.burst - 1)
        self._tat = tat + step
        return 0.0


def latency(seed: int, prompt: str, nth: int) -> float:
    """Seconds this call takes: the same for the same seed, prompt and repetition."""
    digest = hashlib.blake2b(f"{seed}:{nth}:{prompt}".encode(), digest_size=8).digest()
    rng = random.Random(int.from_bytes(digest))  # noqa: S311 - a latency, not a secret
    mu = math.log(LATENCY_MEAN_S) - LATENCY_SIGMA**2 / 2
    return min(rng.lognormvariate(mu, LATENCY_SIGMA), LATENCY_MAX_S)


def summary(text: str) -> str:
    """The first sentence, at most 160 characters: a summary good enough to check."""
    flat = re.sub(r"\s+", " ", text).strip()
    first = re.split(r"(?<=[.!?])\s", flat, maxsplit=1)[0]
    return first if len(first) <= 160 else first[:157] + "..."


def application(seed: int, rate: float, burst: int) -> Starlette:
    """The endpoint as an ASGI application."""
    limit = RateLimit(rate, burst)
    calls: dict[str, int] = {}
    decoder = msgspec.json.Decoder(_Chat)

    async def chat(request: Request) -> Response:
        body = await request.body()
        if len(body) > BODY_BYTES_MAX:
            return _error(413, "the request is too large", "invalid_request_error")
        try:
            chat = decoder.decode(body)
        except msgspec.DecodeError as error:
            return _error(400, str(error), "invalid_request_error")
        wait = limit.admit(time.monotonic())
        if wait > 0:
            response = _error(429, "too many requests", "rate_limit_error")
            response.headers["Retry-After"] = f"{wait:.3f}"
            return response
        prompt = chat.messages[-1].content if chat.messages else ""
        nth = calls[prompt] = calls.get(prompt, -1) + 1
        await asyncio.sleep(latency(seed, prompt, nth))
        text = summary(prompt.partition("\n\n")[2] or prompt)
        return JSONResponse(_completion(chat, prompt, text))

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/health", health),
        ]
    )


def _error(status: int, message: str, kind: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": kind}}, status_code=status)


def _completion(chat: _Chat, prompt: str, text: str) -> dict[str, object]:
    used, made = len(prompt.split()), len(text.split())
    return {
        "id": f"chatcmpl-{hashlib.blake2b(prompt.encode(), digest_size=8).hexdigest()}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": chat.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": used, "completion_tokens": made, "total_tokens": used + made},
    }


def main() -> None:
    """Serve on loopback until stopped; the port is the first line on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=60.0)
    parser.add_argument("--burst", type=int, default=12)
    given = parser.parse_args()
    # asyncio switches Nagle's algorithm off only for sockets that say they are TCP (40 ms each).
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", given.port))
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(
            application(given.seed, given.rate, given.burst),
            log_level="warning",
            access_log=False,
            lifespan="off",
        )
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
