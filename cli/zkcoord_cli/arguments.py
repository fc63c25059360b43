"""A task's arguments as the command line gives them."""

from __future__ import annotations

import json
from typing import Any

import click


def read_arguments(
    pairs: tuple[str, ...], json_args: str | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments; UsageError for what cannot be read."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if json_args is not None:
        match _json(json_args, "--json-args"):
            case list(items):
                args = tuple(items)
            case dict(members):
                kwargs = members
            case _:
                raise click.UsageError("--json-args: must be a JSON array or object")
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.removesuffix(":"):
            raise click.UsageError(f"{pair!r}: write KEY=TEXT or KEY:=JSON")
        name = key.removesuffix(":")
        if name in kwargs:
            raise click.UsageError(f"{name!r} is given twice")
        kwargs[name] = _json(text, pair) if key.endswith(":") else text
    return args, kwargs


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{where}: is not JSON: {error}") from None
