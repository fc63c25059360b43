"""With --json an error is one JSON object on stderr, and nothing is on stdout."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zkcoord_cli.main import cli
from zkcoord_cli.problems import Problems, wants_json

NOWHERE = {"XDG_CONFIG_HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent"}


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, words, env={**NOWHERE, **environment})


def told(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stderr)
    assert result.stdout == ""
    assert document.keys() == {"schema", "error", "message", "hint", "status"}
    assert document["schema"] == "zkcoord.error/1"
    assert document["status"] == result.exit_code
    return document


@pytest.mark.parametrize(
    ("line", "error", "status", "said"),
    [
        ("queue list --json", "ConfigError", 3, "nothing says where ZooKeeper is"),
        ("queue list --json --context x", "ConfigError", 3, "context 'x' is not in"),
        ("local status --json", "StackError", 4, "no local stack named 'default' runs"),
        ("node get --json", "MissingParameter", 2, "PATH"),
        ("node get /a --wrong --json", "NoSuchOption", 2, "--wrong"),
        ("semaphore resize a none --json", "BadParameter", 2, "none"),
        ("local up --name ../x --json", "BadParameter", 2, "no name for a stack"),
    ],
)
def test_errors_are_one_object(line: str, error: str, status: int, said: str) -> None:
    document = told(run(*line.split()))
    assert (document["error"], document["status"]) == (error, status)
    assert said in document["message"]


def test_the_variable_asks_too_and_nobody_asks_for_ever() -> None:
    assert told(run("queue", "list", ZKCOORD_JSON="1"))["error"] == "ConfigError"
    assert told(run("node", "get", "--wrong", ZKCOORD_JSON="true"))["error"] == "NoSuchOption"
    assert run("queue", "list").stderr.startswith("error: nothing says where ZooKeeper is")
    assert run("node", "get", "--wrong").stderr.startswith("Usage: ")


def test_what_needs_no_json_is_no_json() -> None:
    assert "No such option" in run("lock", "run", "--wrong", "--json", "a").stderr
    assert not wants_json(["lock", "run", "a", "--", "x", "--json"])


def test_a_missing_node_is_told_in_json(zookeeper: str) -> None:
    document = told(run("node", "get", "/nothing", "--json", ZKCOORD_ZOOKEEPER=zookeeper))
    assert (document["error"], document["status"]) == ("NodeMissing", 5)


def test_several_errors_are_one_and_a_status_has_a_name() -> None:
    problems = Problems()
    assert problems.document(0) == ""
    problems.add("one", "")
    problems.add("two\x9b", "look")
    said = problems.document(5)
    assert said.isascii()
    assert json.loads(said) == {
        "schema": "zkcoord.error/1",
        "error": "NOT_FOUND",
        "message": "one\ntwo\x9b",
        "hint": "look",
        "status": 5,
    }
    problems.begin()
    assert problems.document(5) == ""
