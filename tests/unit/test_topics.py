from typing import Any

import pytest

from zkcoord.errors import ConfigError
from zkcoord.kafka import TopicInfo
from zkcoord.queue.topics import KINDS, Topics, specs


def by_kind(**changes: Any) -> Any:
    return {spec.name.rsplit(".", 1)[1]: spec for spec in specs(Topics("mail"), **changes)}


def test_names_are_namespace_queue_kind() -> None:
    topics = Topics("mail", namespace="shop")
    assert topics.critical == "shop.mail.critical"
    assert topics.priorities[3] == "shop.mail.low"
    assert topics.group.startswith("shop.mail.")
    assert len(topics.all) == len(set(topics.all)) == len(KINDS)
    assert {spec.name for spec in specs(topics)} == set(topics.all)


@pytest.mark.parametrize("bad", ["", "a.b", "-a", "_a", "ä", "a b", "a/b", "x" * 101, "a\n"])
def test_names_that_could_collide_or_break_are_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="queue"):
        Topics(bad)
    with pytest.raises(ConfigError, match="namespace"):
        Topics("mail", namespace=bad)


def test_the_longest_names_fit_kafka() -> None:
    topics = Topics("q" * 100, namespace="n" * 100)
    assert max(map(len, topics.all)) <= 249


@pytest.mark.parametrize("kind", ["critical", "high", "normal", "low", "control"])
def test_topics_that_others_write_refuse_bombs_and_foreign_clocks_and_never_expire(
    kind: Any,
) -> None:
    config = by_kind()[kind].config
    assert config["compression.type"] == "uncompressed"
    assert config["message.timestamp.type"] == "LogAppendTime"
    assert config["max.message.bytes"] == "1048576"
    assert config["retention.ms"] == "-1"
    assert config["retention.bytes"] == "-1"


def test_the_truth_never_expires_and_the_checkpoint_is_compacted() -> None:
    table = by_kind()
    assert table["log"].config["retention.ms"] == "-1"
    assert table["log"].partitions == 1
    assert not table["log"].may_grow
    assert table["checkpoint"].config["cleanup.policy"] == "compact"
    assert "retention.ms" not in table["checkpoint"].config


def test_internal_records_may_wrap_the_largest_task() -> None:
    table = by_kind()
    task = int(table["critical"].config["max.message.bytes"])
    for kind in ("log", "checkpoint", "inbox", "results", "dead", "reports"):
        assert int(table[kind].config["max.message.bytes"]) > 2 * task - 1


def test_no_topic_elects_an_unclean_leader() -> None:
    assert {s.config["unclean.leader.election.enable"] for s in by_kind().values()} == {"false"}


@pytest.mark.parametrize(("replication", "least"), [(1, 1), (2, 1), (3, 2), (5, 4)])
def test_in_sync_replicas_follow_replication(replication: Any, least: Any) -> None:
    for spec in by_kind(replication=replication).values():
        assert spec.replication == replication
        assert spec.least["min.insync.replicas"] == least


@pytest.mark.parametrize(
    "changes",
    [{"partitions": 0}, {"inboxes": 0}, {"replication": 0}, {"min_insync": 2}],
)
def test_numbers_out_of_bounds_are_refused(changes: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        by_kind(**changes)


def as_it_is(spec: Any, **changes: Any) -> Any:
    info = TopicInfo(spec.name, spec.partitions, spec.replication, spec.settings())
    return info._replace(**changes)


def test_a_topic_as_created_matches() -> None:
    for spec in by_kind(partitions=3, replication=3).values():
        assert spec.compare(as_it_is(spec)) == []


def test_a_missing_topic_is_one_finding() -> None:
    (finding,) = by_kind()["log"].compare(None)
    assert str(finding) == "zkcoord.mail.log: the topic must be there, is missing"


def test_every_difference_is_a_finding() -> None:
    spec = by_kind()["critical"]
    other = as_it_is(
        spec, config=spec.settings() | {"retention.ms": "1000", "compression.type": "zstd"}
    )
    assert {f.what for f in spec.compare(other)} == {"retention.ms", "compression.type"}


def test_partitions_may_grow_only_where_readers_can_follow() -> None:
    table = by_kind(inboxes=4)
    assert table["inbox"].compare(as_it_is(table["inbox"], partitions=9)) == []
    assert table["inbox"].compare(as_it_is(table["inbox"], partitions=3))
    assert table["log"].compare(as_it_is(table["log"], partitions=2))


def test_operators_may_keep_more_and_tune_segments_but_not_keep_too_little() -> None:
    spec = by_kind()["inbox"]
    settings = spec.settings()
    for value, findings in (("-1", 0), ("999999999999", 0), ("1000", 1), ("soon", 1)):
        found = as_it_is(
            spec, config=settings | {"retention.ms": value, "segment.bytes": "1048576"}
        )
        assert len(spec.compare(found)) == findings
    assert settings["retention.ms"] == "86400000"


def test_more_replicas_are_no_finding_and_fewer_are() -> None:
    spec = by_kind(replication=3)["log"]
    assert spec.compare(as_it_is(spec, replication=5)) == []
    assert [f.what for f in spec.compare(as_it_is(spec, replication=2))] == ["replication"]
