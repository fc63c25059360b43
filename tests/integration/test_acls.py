"""Access lists on every node that a session creates, and what others may not do with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from special_stack import SpecialStack, with_users

from tests.waiting import until
from zkcoord import (
    AccessDenied,
    AclEntry,
    Agent,
    DigestConfig,
    Election,
    IdentityRefused,
    KafkaConfig,
    Lock,
    Membership,
    NodeMissing,
    Queue,
    QuotaFull,
    SaslConfig,
    Scheduler,
    Session,
    SessionClosed,
    SessionConfig,
    digest_id,
)
from zkcoord.kafka import Admin
from zkcoord.queue.administration import QueueDescription, create_queue

MINE = DigestConfig(username="mine", password="my secret")
MY_ID = digest_id("mine", "my secret")
PRIVATE = SessionConfig(timeout_s=4, digest=MINE, acl="private")
ME_ALONE = (AclEntry(scheme="digest", id=MY_ID),)

Use = Callable[[Session], object]


def lock(session: Session) -> object:
    return Lock(session, "printer").acquire(5).path


def election(session: Session) -> object:
    return Election(session, "boss").campaign(5)


def membership(session: Session) -> object:
    return Membership(session, "/fleet").join("one")


def nodes(session: Session) -> object:
    session.nodes.create("/box", container=True)
    return session.nodes.create("/deep/er/still", b"secret", makepath=True)


def transaction(session: Session) -> object:
    return session.nodes.transaction().create("/t").create("/t/u", b"secret").commit()


def tree(session: Session, path: str = "/") -> Iterator[str]:
    """All paths from here down."""
    yield path
    for name in session.nodes.children(path):
        yield from tree(session, f"/{name}" if path == "/" else f"{path}/{name}")


def assert_mine_alone(below: str) -> None:
    """Every node below is ours alone, and a stranger is told so."""
    with Session(below, config=PRIVATE) as session, Session(below, timeout=4) as stranger:
        paths = list(tree(session))
        assert len(paths) > 1
        for path in paths:
            assert session.nodes.acl(path) == ME_ALONE, path
            for forbidden in (stranger.nodes.get, stranger.nodes.children):
                with pytest.raises(AccessDenied, match=path) as caught:
                    forbidden(path)
                assert "nobody in particular" in caught.value.hint
        with pytest.raises(AccessDenied, match="create /mine"):
            stranger.nodes.create("/mine")


@pytest.mark.parametrize("use", [lock, election, membership, nodes, transaction])
def test_what_a_private_session_creates_is_nobody_elses(zookeeper: str, use: Use) -> None:
    below = zookeeper + "/above/below"
    with Session(below, config=PRIVATE) as session:
        assert ("digest:mine") in session.identity
        use(session)
        assert_mine_alone(below)
    with Session(zookeeper, config=PRIVATE) as session:
        assert session.nodes.acl("/above") == ME_ALONE  # above the session's own root, too


def test_a_queues_nodes_are_private_too(zookeeper: str, kafka: str, queue_name: str) -> None:
    below = zookeeper + "/queues"
    servers = KafkaConfig(bootstrap=kafka)
    with Session(below, config=PRIVATE) as session, Admin(servers) as admin:
        create_queue(session, admin, QueueDescription(queue=queue_name))
    queue = Queue(queue_name, kafka=servers, zookeeper=below, session=PRIVATE)

    @queue.task()
    def double(number: int) -> int:
        return 2 * number

    scheduler = Scheduler(queue, kafka=servers, zookeeper=below, session=PRIVATE)
    agent = Agent(queue, slots=1)
    scheduler.start()
    agent.start()
    try:
        with queue:
            assert double.submit(21).result(timeout=30) == 42
            assert_mine_alone(below)
    finally:
        agent.stop()
        scheduler.stop()


def test_a_recipe_of_another_identity_is_refused_and_leaves_nothing(zookeeper: str) -> None:
    with Session(zookeeper, config=PRIVATE) as session:
        lease = Lock(session, "printer").acquire(5)
        other = SessionConfig(timeout_s=4, digest=DigestConfig(username="other", password="x"))
        with Session(zookeeper, config=other) as stranger:
            for enter in (
                lambda: Lock(stranger, "printer").acquire(5),
                lambda: stranger.nodes.create(f"{lease.path}-", ephemeral=True),
            ):
                with pytest.raises(AccessDenied, match="/locks/printer") as caught:
                    enter()
                assert "acts as the digest user 'other'" in str(caught.value)
            assert stranger.ephemeral_bytes == 0
        lease.check()
        assert len(session.nodes.children("/locks/printer")) == 1


def test_another_session_of_the_same_identity_gets_in(zookeeper: str) -> None:
    with Session(zookeeper, config=PRIVATE) as one, Session(zookeeper, config=PRIVATE) as two:
        lease = Lock(one, "printer").acquire(5)
        waiting = Lock(two, "printer").acquire_future(5)
        lease.release()
        waiting.wait().check()


def test_a_given_list_is_what_nodes_get(zookeeper: str) -> None:
    acl = f"digest:{MY_ID}:rwcda;world:anyone:r"
    config = SessionConfig(timeout_s=4, digest=MINE, acl=acl)
    with Session(zookeeper, config=config) as session, Session(zookeeper, timeout=4) as reader:
        session.nodes.create("/a", b"1")
        assert session.nodes.acl("/a") == (
            AclEntry(scheme="digest", id=MY_ID),
            AclEntry(scheme="world", id="anyone", permissions="r"),
        )
        assert reader.nodes.get("/a")[0] == b"1"
        with pytest.raises(AccessDenied, match="set /a"):
            reader.nodes.set("/a", b"2")


def test_a_list_can_be_replaced(zookeeper: str) -> None:
    with Session(zookeeper, config=PRIVATE) as session, Session(zookeeper, timeout=4) as other:
        session.nodes.create("/a", b"1")
        with pytest.raises(AccessDenied, match="set_acl /a"):
            other.nodes.set_acl("/a", "open")
        assert session.nodes.set_acl("/a", "open").aversion == 1
        assert other.nodes.get("/a")[0] == b"1"
        with pytest.raises(NodeMissing):
            session.nodes.acl("/b")


def test_an_open_session_leaves_everything_open(zookeeper: str) -> None:
    with Session(zookeeper, timeout=4) as session:
        session.nodes.create("/a")
        assert session.nodes.acl("/a") == (AclEntry(scheme="world", id="anyone"),)


# --- a server that knows users, and enforces quotas -----------------------------------------------


def sasl(user: str, password: str, acl: str = "private") -> SessionConfig:
    identity = SaslConfig(mechanism="DIGEST-MD5", username=user, password=password)
    return SessionConfig(timeout_s=4, sasl=identity, acl=acl)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpecialStack]:
    with with_users(tmp_path_factory.mktemp("jaas"), agent="agents word", ops="ops word") as stack:
        yield stack


def test_sasl_users_are_kept_apart(users: SpecialStack) -> None:
    with (
        Session(users.zookeeper + "/apart", config=sasl("agent", "agents word")) as agent,
        Session(users.zookeeper, config=sasl("ops", "ops word")) as ops,
    ):
        assert "sasl:agent" in agent.identity
        lease = Lock(agent, "l").acquire(5)
        assert agent.nodes.acl(lease.path) == (AclEntry(scheme="sasl", id="agent"),)
        with pytest.raises(AccessDenied, match="/apart"):
            ops.nodes.get("/apart")
        with pytest.raises(AccessDenied, match="/apart"):
            Session(users.zookeeper + "/apart/ops", config=sasl("ops", "ops word")).start()


def test_a_wrong_password_is_an_error_at_start(
    users: SpecialStack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    session = Session(users.zookeeper, config=sasl("agent", "the wrong word"))
    with pytest.raises(IdentityRefused, match="the SASL user 'agent'") as caught:
        session.start(timeout=30)
    with pytest.raises(SessionClosed, match="refused this client's identity"):
        session.nodes.get("/")
    assert session.close()
    with Session(users.zookeeper, config=sasl("agent", "agents word")) as agent:
        agent.nodes.get("/")
    for secret in ("wrong word", "agents word"):
        assert secret not in caplog.text + str(caught.value)


def test_a_root_that_is_given_to_us_serves_although_we_may_not_create_it(
    users: SpecialStack,
) -> None:
    with Session(users.zookeeper, config=sasl("ops", "ops word")) as ops:
        nodes = ops.nodes
        nodes.create("/given/agent/locks", makepath=True)
        nodes.set_acl("/given/agent/locks", "sasl:agent:rwcd;sasl:ops:rwcda")
        nodes.set_acl("/given/agent", "sasl:agent:r;sasl:ops:rwcda")
        with Session(users.zookeeper + "/given/agent", config=sasl("agent", "agents word")) as a:
            Lock(a, "l").acquire(5).release()
            done: list[object] = []
            a.link.ensure("/given/agent/locks", done.append)  # there, and not ours to create
            a.link.ensure("/given/agent/other", done.append)  # not there, and not ours either
            until(lambda: len(done) == 2)
            assert done[0] is None
            assert isinstance(done[1], AccessDenied)
        with pytest.raises(AccessDenied, match="create /given/others"):
            Session(users.zookeeper + "/given/others", config=sasl("agent", "agents word")).start()


def test_a_full_quota_is_told(users: SpecialStack) -> None:
    with Session(users.zookeeper, config=sasl("ops", "ops word", "open")) as ops:
        ops.nodes.create("/few")
        limits = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3"
        ops.nodes.create("/zookeeper/quota/few/zookeeper_limits", limits, makepath=True)
        ops.nodes.create("/zookeeper/quota/few/zookeeper_stats", b"count=1,bytes=0")
        with Session(users.zookeeper + "/few", timeout=4) as session:
            session.nodes.create("/a")
            session.nodes.create("/b")
            with pytest.raises(QuotaFull, match=r"create /c: the quota"):
                session.nodes.create("/c")
            with pytest.raises(QuotaFull, match="create /locks"):
                Lock(session, "l").acquire(5)
            assert session.ephemeral_bytes == 0
            assert session.connected
