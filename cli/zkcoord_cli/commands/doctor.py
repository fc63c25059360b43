"""`zkcoord doctor`: what does not work, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zkcoord_cli.exit_codes import ExitCode
from zkcoord_cli.options import connected, json_option
from zkcoord_cli.output import Output, pass_output, safe, schema_name

if TYPE_CHECKING:
    from zkcoord.inspector.checks import Finding
    from zkcoord.settings import Settings

COLORS = {"ok": "green", "warn": "yellow", "FAIL": "red", "skipped": "blue"}


@click.command(name="doctor")
@json_option
@connected
@pass_output
def command(output: Output, settings: Settings, as_json: bool) -> int:
    """Check ZooKeeper, Kafka and the queues; say what to do about what is wrong.

    Safe in production: it reads, and writes one ephemeral znode. The exit status is 11 when
    something does not work; warnings alone leave it 0.

    \b
    zkcoord doctor
    zkcoord doctor --context shop --json
    """
    import msgspec

    from zkcoord.inspector.checks import FAIL, WARN, examine

    findings: list[Finding] = []
    for finding in examine(settings):
        findings.append(finding)
        if not as_json:
            _print(output, finding)
    failed = sum(finding.status == FAIL for finding in findings)
    warned = sum(finding.status == WARN for finding in findings)
    if as_json:
        items = msgspec.to_builtins(findings)
        document = {"healthy": not failed, "failed": failed, "warned": warned, "items": items}
        output.json(schema_name("doctor", "report"), document)
    else:
        output.note(f"{len(findings)} checks, {failed} failed, {warned} warnings")
    return ExitCode.FAULTS_FOUND if failed else ExitCode.OK


def _print(output: Output, finding: Finding) -> None:
    """One line as soon as it is known: a slow check must not hide the others."""
    import sys

    colored = output.colored(sys.stdout)
    status = f"{finding.status:<7}"
    if colored:
        status = click.style(status, fg=COLORS[finding.status], bold=True)
    advice = f" -> {safe(finding.advice)}" if finding.advice else ""
    click.echo(f"{status} {safe(finding.check)}: {safe(finding.observed)}{advice}", color=colored)
