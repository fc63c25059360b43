"""`zkcoord demo`: the main job on real servers, with faults, and a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zkcoord_cli.exit_codes import ExitCode
from zkcoord_cli.options import connected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.settings import Settings


@click.command(name="demo")
@click.option("--agents", type=click.IntRange(2, 64), default=8, help="Agent processes.")
@click.option("--tasks", type=click.IntRange(1, 10_000), default=100, help="Model tasks.")
@click.option("--seed", type=int, default=1, help="Of priorities and of the model's latency.")
@click.option("--no-faults", is_flag=True, help="Kill nothing.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible endpoint to use instead.")
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False),
    help="File with the endpoint's key.",
)
@click.option("--model", metavar="NAME", help="The endpoint's model.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False),
    help="Where logs, ledgers and shared files are kept; a temporary folder, deleted when all went"
    " well, without it.",
)
@json_option
@connected
@pass_output
def command(output: Output, /, settings: Settings, as_json: bool, **chosen: Any) -> int:
    """Run 100 model tasks on 8 agents, kill an agent and the leader, and prove nothing was lost.

    Uses the servers that the settings name or the running local stack; without either it starts a
    stack of its own and stops it at the end. Ends with status 1 when a task was lost or
    doubled, 9 when one did not succeed.

    \b
    zkcoord demo
    zkcoord demo --tasks 500 --seed 7 --json
    """
    from pathlib import Path

    from zkcoord_cli.demo.live import Screen
    from zkcoord_cli.demo.run import Options, run_demo
    from zkcoord_cli.demo.summary import rows

    folder = chosen.pop("folder")
    options = Options(faults=not chosen.pop("no_faults"), **chosen)
    with Screen(output.console()) as screen:
        outcome = run_demo(
            options,
            screen,
            settings=settings,
            folder=None if folder is None else Path(folder),
        )
    report = outcome.as_dict()
    if as_json:
        output.json(schema_name("demo", "run"), report)
    else:
        output.fields(rows(report))
    if not outcome.sound:
        output.error("the run was not sound: something was lost, doubled or broken")
        return ExitCode.UNEXPECTED
    if report["succeeded"] < report["submitted"]:
        output.error(f"{report['dead']} tasks ended as dead letters, none was lost")
        return ExitCode.TASK_FAILED
    return ExitCode.OK
