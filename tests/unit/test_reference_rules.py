"""What the reference of Python names shows: what users call, and nothing that is ours alone."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import zkcoord

RE = re.MULTILINE | re.DOTALL
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_generator", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def own_classes() -> set[str]:
    """Classes of the library that cannot be imported from `zkcoord`."""
    found: set[str] = set()
    for name, module in list(sys.modules.items()):
        if name.startswith("zkcoord."):
            found |= {each for each, kind in vars(module).items() if isinstance(kind, type)}
    return found - set(zkcoord.__all__)


def test_what_asks_for_something_of_ours_is_not_shown_as_callable(generate: ModuleType) -> None:
    inner = {"Link", "Epoch", "Worker", "Submitter", "Run", "Admission"}
    assert {"Link", "Epoch"} <= own_classes()
    for name in zkcoord.__all__:
        thing: Any = getattr(zkcoord, name)
        if isinstance(thing, type) and not generate.is_given(thing):
            assert not inner & set(re.findall(r"\w+", generate.shape(name, thing))), name


def test_no_member_is_ours_alone(generate: ModuleType) -> None:
    page = generate.text_of("python.md")
    shown = re.findall(r"^\*\*`(?:async )?(\w+)", page, re.MULTILINE)
    assert {"release", "check", "acquire", "wait", "then"} <= set(shown)
    ours = {"abandon", "passed_on", "fulfil", "fail", "on_done", "looks_after_itself", "removed"}
    assert not ours & set(shown)
    assert "Internal: " not in page
    assert not re.search(r"\b(link: Link|epoch: Epoch|On the loop)\b", page)


def test_an_internal_member_of_a_base_does_not_come_back(generate: ModuleType) -> None:
    members = "\n".join(generate.members(zkcoord.MultiLease))
    assert "removed" not in members
    assert generate.is_internal(zkcoord.MultiLease.removed)


def test_every_member_that_is_shown_says_what_it_does(generate: ModuleType) -> None:
    for name in zkcoord.__all__:
        thing: Any = getattr(zkcoord, name)
        if isinstance(thing, type) and thing.__module__.startswith("zkcoord"):
            assert inspect.getdoc(thing), name


@pytest.mark.parametrize("kind", ["SessionConfig", "TlsConfig"])
def test_who_we_are_is_told_field_by_field(generate: ModuleType, kind: str) -> None:
    (section,) = re.findall(rf"^## {kind}\n(.*?)^## ", generate.text_of("configuration.md"), RE)
    told = [line.rsplit(" | ", 1)[1] for line in section.splitlines() if line.startswith("| `")]
    assert told
    assert not [text for text, count in Counter(told).items() if count > 1]
