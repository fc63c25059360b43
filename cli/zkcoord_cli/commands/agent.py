"""`zkcoord agent`: run an agent; list agents."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.options import QUEUE, SECONDS, connected, inspected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.inspector import Inspector
    from zkcoord.settings import Settings


class _Leaving(SystemExit):
    """SIGTERM came while the agent does not catch it itself: nothing was claimed, or all is over.

    Of SystemExit, so that `except Exception` in a module of handlers lets it pass.
    """


@contextmanager
def _leaving_early() -> Iterator[None]:
    """Inside, SIGTERM ends the block and the log says so; the agent itself takes it over."""

    def heard(_number: int, _frame: FrameType | None) -> None:
        raise _Leaving(0)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, heard)
    try:
        yield
    except _Leaving:
        log = logging.getLogger("zkcoord.agent")
        log.info("the agent leaves: SIGTERM while it was not in the queue")
    finally:
        signal.signal(signal.SIGTERM, before)


@click.group(name="agent")
def command() -> None:
    """Run an agent; list the agents of a queue."""


@command.command()
@click.argument("queue", type=QUEUE)
@click.option(
    "--handlers",
    required=True,
    metavar="MODULE:ATTRIBUTE",
    help="A zkcoord.Queue with tasks, or a mapping of task names to functions.",
)
@click.option("--slots", type=click.IntRange(1, 10_000), default=8, help="Tasks at a time.")
@click.option("--capability", multiple=True, metavar="NAME", help="What it offers: gpu=a100.")
@click.option(
    "--drain", type=SECONDS, default=30.0, metavar="SECONDS", help="For running tasks, at the end."
)
@click.option(
    "--grace", type=SECONDS, default=5.0, metavar="SECONDS", help="For a cancelled task's clean-up."
)
@click.option("--ledger", type=click.Path(dir_okay=False), help="File of starts and ends, JSON.")
@click.option("--name", metavar="NAME", show_default="host-pid-digits", help="Its name.")
@connected
@pass_output
def run(
    output: Output, /, settings: Settings, queue: str, handlers: str, slots: int, **given: Any
) -> None:
    """Run an agent until SIGTERM or Ctrl-C; then it drains. A second signal stops at once.

    Servers named here, in the environment or in a context win over those in the module.

    \b
    zkcoord agent run mail --handlers app:queue
    zkcoord agent run mail --handlers app:queue --slots 2 --capability gpu=a100
    """
    from zkcoord_cli.servicelog import configure

    configure(output.verbose)
    with _leaving_early():
        _run(output, settings, queue, handlers, slots, given)


def _run(
    output: Output,
    settings: Settings,
    queue: str,
    handlers: str,
    slots: int,
    given: dict[str, Any],
) -> None:
    from zkcoord.config import AgentConfig
    from zkcoord.queue.agent import Agent
    from zkcoord_cli.handlers import load_queue

    config = AgentConfig(
        slots=slots,
        capabilities=frozenset(given["capability"]),
        drain_s=given["drain"],
        grace_s=given["grace"],
        ledger=given["ledger"],
    )
    agent = Agent(load_queue(queue, handlers, settings), config=config, name=given["name"] or "")
    output.note(f"agent {agent.name} runs tasks of {queue} in {slots} slots; Ctrl-C to drain")
    if not agent.run():
        output.warn("some tasks did not end in time and were given back")


@command.command(name="list")
@click.argument("queue", required=False)
@json_option
@inspected
@pass_output
def list_(output: Output, inspector: Inspector, queue: str | None, as_json: bool) -> None:
    """List the agents of one queue, or of all.

    \b
    zkcoord agent list
    zkcoord agent list mail --json
    """
    import msgspec

    from zkcoord_cli.formats import duration

    views = inspector.agents(queue)
    if as_json:
        output.json(schema_name("agent", "list"), {"items": msgspec.to_builtins(views)})
        return
    output.table(
        ("QUEUE", "AGENT", "HOST", "PID", "SLOTS", "INBOX", "SINCE", "CAPABILITIES", "TASKS"),
        [
            (
                view.queue,
                view.name + (" draining" if view.draining else ""),
                view.host,
                view.pid,
                view.slots,
                view.partition,
                duration(view.age),
                ",".join(view.capabilities) or None,
                ",".join(view.tasks),
            )
            for view in views
        ],
        right=("PID", "SLOTS", "INBOX", "SINCE"),
        empty="there are no agents; run one: zkcoord agent run QUEUE --handlers app:queue",
    )
