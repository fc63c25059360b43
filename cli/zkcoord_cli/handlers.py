"""Find the handlers that `agent run --handlers module:attribute` names."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkcoord.errors import ConfigError

if TYPE_CHECKING:
    from zkcoord.queue.handle import Queue
    from zkcoord.settings import Settings


def load_queue(name: str, where: str, settings: Settings) -> Queue:
    """The queue whose tasks an agent runs, from ``module:attribute``.

    The attribute is a :class:`~zkcoord.Queue` with tasks, or a mapping of task names to functions.
    Servers named by flags, environment or a context win over those that the module names; the
    running local stack is used when the module names none.

    Raises:
        ConfigError: there is no such module or attribute, it is neither, or another queue's.
        UsageError: `where` has no attribute.
    """
    from zkcoord.queue.handle import Queue

    found = _find(where)
    if isinstance(found, Queue):
        if found.name != name:
            raise ConfigError(
                f"--handlers {where} is queue {found.name!r}, not {name!r}",
                hint=f"zkcoord agent run {found.name} --handlers {where}",
            )
        _override(found, settings)
        return found
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"--handlers {where} is of type {type(found).__name__!r}, which has no handlers",
            hint="name a zkcoord.Queue, or a mapping of task names to functions",
        )
    queue = Queue(
        name,
        kafka=settings.need_kafka(),
        zookeeper=settings.need_zookeeper(),
        namespace=settings.namespace,
        session=settings.session,
    )
    for task, function in found.items():
        queue.task(name=task)(function)
    return queue


def _override(queue: Queue, settings: Settings) -> None:
    """Let what the person who starts the agent says win over what stands in the module."""
    from zkcoord.settings import LOCAL

    if settings.zookeeper is not None and not settings.origin.get("zookeeper", "").startswith(
        LOCAL
    ):
        queue.zookeeper = settings.need_zookeeper()
    if settings.kafka is not None and not settings.origin.get("kafka", "").startswith(LOCAL):
        queue.kafka = settings.need_kafka()
    if settings.origin.get("session_timeout_s", "default") != "default":
        queue.session_config = settings.session


def _find(where: str) -> Any:
    name, _, attribute = where.partition(":")
    if not name or not attribute:
        raise click.UsageError(f"--handlers {where}: write MODULE:ATTRIBUTE, such as app:queue")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        found: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigError(
                f"--handlers {where}: there is no module {error.name!r}",
                hint="run it where the module is, or set PYTHONPATH",
            ) from error
        raise _broken(where, error) from error
    except Exception as error:
        raise _broken(where, error) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"--handlers {where}: {name} has no {attribute!r}")
        found = getattr(found, part)
    return found


def _broken(where: str, error: Exception) -> ConfigError:
    """The module's own error, with the place in the module that its author must mend."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{last.filename}:{last.lineno}"
    if isinstance(error, SyntaxError) and error.filename is not None:
        place = f"{error.filename}:{error.lineno}"  # the frames are the importing machinery's
    return ConfigError(
        f"--handlers {where}: the module cannot be imported: {type(error).__name__}: {error}",
        hint=f"see {place}",
    )
