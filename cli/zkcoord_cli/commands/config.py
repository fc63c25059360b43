"""`zkcoord config`: the settings in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zkcoord_cli.options import connected, json_option
from zkcoord_cli.output import Output, pass_output, schema_name

if TYPE_CHECKING:
    from zkcoord.settings import Settings


@click.group(name="config")
def command() -> None:
    """Show the settings in force and where each came from."""


@command.command()
@json_option
@connected
@pass_output
def show(output: Output, settings: Settings, as_json: bool) -> None:
    """Show which servers would be used, and where each value came from.

    \b
    zkcoord config show
    zkcoord config show --context shop --json
    """
    from zkcoord.settings import settings_path

    values = {
        "zookeeper": settings.zookeeper,
        "kafka": settings.kafka.bootstrap if settings.kafka else None,
        "namespace": settings.namespace,
        "session_timeout_s": settings.session.timeout_s,
        "connect_timeout_s": settings.session.connect_timeout_s,
        "zookeeper_acl": settings.session.acl,
        "zookeeper_read_only": settings.session.read_only,
    }
    secret = {key: "set" for key in settings.origin if key not in values}
    rows = [(key, value, settings.origin.get(key)) for key, value in {**values, **secret}.items()]
    if as_json:
        output.json(
            schema_name("config", "show"),
            {
                "file": str(settings_path()),
                "context": settings.context,
                "settings": [
                    dict(zip(("key", "value", "origin"), row, strict=True)) for row in rows
                ],
            },
        )
        return
    output.fields([("file", settings_path()), ("context", settings.context)])
    output.line()
    output.table(("KEY", "VALUE", "FROM"), rows)
    for error in settings.broken.values():
        output.warn(str(error.args[0]))
