from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.unit.agentbench import Bench, nothing


@pytest.fixture
async def benches() -> AsyncIterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(handlers: dict[str, Callable[..., Any]] | None = None, **config: Any) -> Bench:
        made.append(Bench(handlers or {"work": nothing}, **config))
        return made[-1]

    yield make
    for bench in made:
        assert await bench.executor.close(5.0)
