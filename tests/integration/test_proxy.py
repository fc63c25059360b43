"""What the proxy does to a connection, over a plain echo server and over real ones."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from zkcoord.errors import StackError
from zkcoord.local import Proxy, Stack, probe

SECONDS = 10.0
BRIEF = 0.2  # how long "nothing comes" is watched for


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


class Echo:
    """Sends back what it gets; remembers what it got."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.received = bytearray()
        self.ends: list[str] = []
        self.threads: list[threading.Thread] = []
        self.acceptor = threading.Thread(target=self.accept)
        self.acceptor.start()

    def accept(self) -> None:
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.serve, args=(link,))
            thread.start()
            self.threads.append(thread)

    def serve(self, link: socket.socket) -> None:
        with link:
            try:
                while piece := link.recv(65536):
                    self.received += piece
                    link.sendall(piece)
            except ConnectionError:
                self.ends.append("reset")
            else:
                self.ends.append("end")

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in (self.acceptor, *self.threads):
            thread.join(SECONDS)
            assert not thread.is_alive()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.address) as between:
        yield between


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with connect(proxy) as link:
        yield link


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), SECONDS)


def exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = link.recv(count - len(data))
        assert piece, f"the connection ended after {data!r}"
        data += piece
    return data


def is_silent(link: socket.socket) -> bool:
    link.settimeout(BRIEF)
    try:
        link.recv(1)
    except TimeoutError:
        return True
    finally:
        link.settimeout(SECONDS)
    return False


def test_bytes_pass_unchanged_and_are_counted(
    echo: Echo, proxy: Proxy, client: socket.socket
) -> None:
    body = bytes(range(256)) * 4096
    sender = threading.Thread(target=client.sendall, args=(body,))
    sender.start()
    assert exactly(client, len(body)) == body
    sender.join()
    assert (proxy.bytes_up, proxy.bytes_down) == (len(body), len(body))
    assert (proxy.connections, proxy.open_connections) == (1, 1)
    client.close()
    until(lambda: proxy.open_connections == 0)
    until(lambda: echo.ends == ["end"])


def test_half_of_a_connection_can_end(proxy: Proxy, client: socket.socket) -> None:
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    assert exactly(client, 10) == b"last words"
    assert client.recv(1) == b""


def test_cut_resets_both_sides_and_new_connections_are_served(
    echo: Echo, proxy: Proxy, client: socket.socket
) -> None:
    client.sendall(b"x")
    exactly(client, 1)
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    until(lambda: echo.ends == ["reset"])
    with connect(proxy) as again:
        again.sendall(b"y")
        assert exactly(again, 1) == b"y"


def test_refuse_keeps_what_is_there_and_heal_listens_on_the_same_port(
    proxy: Proxy, client: socket.socket
) -> None:
    client.sendall(b"x")
    exactly(client, 1)
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    client.sendall(b"y")
    assert exactly(client, 1) == b"y"
    proxy.heal()
    with connect(proxy) as other:
        other.sendall(b"z")
        assert exactly(other, 1) == b"z"


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_blackhole_holds_one_direction_until_it_heals(
    echo: Echo, proxy: Proxy, client: socket.socket, direction: str
) -> None:
    client.sendall(b"a")
    exactly(client, 1)
    proxy.blackhole(up=direction == "up", down=direction == "down")
    client.sendall(b"b")
    assert is_silent(client)
    assert bytes(echo.received) == (b"a" if direction == "up" else b"ab")
    proxy.heal()
    assert exactly(client, 1) == b"b"


def test_a_blackhole_swallows_ends_and_resets_too(
    echo: Echo, proxy: Proxy, client: socket.socket
) -> None:
    client.sendall(b"a")
    exactly(client, 1)
    proxy.blackhole()
    client.close()
    with connect(proxy) as newcomer:
        newcomer.sendall(b"hello?")
        assert is_silent(newcomer)
        assert echo.ends == []
        proxy.heal()
        assert exactly(newcomer, 6) == b"hello?"
    until(lambda: echo.ends == ["end", "end"])


def test_a_blackhole_does_not_slow_the_other_direction(
    echo: Echo, proxy: Proxy, client: socket.socket
) -> None:
    client.sendall(b"a")
    exactly(client, 1)
    proxy.blackhole(up=False, down=True)
    client.sendall(b"b" * 100_000)
    until(lambda: len(echo.received) == 100_001)


def test_delay_is_latency_in_the_directions_that_were_named(
    proxy: Proxy, client: socket.socket
) -> None:
    def round_trip() -> float:
        begun = time.monotonic()
        client.sendall(b"x" * 10)
        exactly(client, 10)
        return time.monotonic() - begun

    proxy.delay(0.05)
    assert round_trip() >= 0.1
    proxy.heal()
    proxy.delay(0.05, "up")
    assert round_trip() >= 0.05
    begun = time.monotonic()
    proxy.delay(0.5, "up")
    for _ in range(20):  # latency, not throughput: they travel together, not one after another
        client.sendall(b"x")
        time.sleep(0.005)
    exactly(client, 20)
    assert 0.5 <= time.monotonic() - begun < 20 * 0.5


@pytest.mark.parametrize("direction", ["up", "down"])
def test_cut_after_delivers_exactly_so_many_bytes(
    echo: Echo, proxy: Proxy, client: socket.socket, direction: str
) -> None:
    client.sendall(b"before")
    exactly(client, 6)
    done = proxy.cut_after(4, direction=direction)  # type: ignore[arg-type]
    client.sendall(b"01")
    assert exactly(client, 2) == b"01"
    client.sendall(b"23456789")
    assert done.wait(SECONDS)
    if direction == "down":
        assert exactly(client, 2) == b"23"
    with pytest.raises(ConnectionResetError):
        exactly(client, 1 if direction == "down" else 5)
    if direction == "up":
        until(lambda: bytes(echo.received) == b"before0123")
    with connect(proxy) as again:  # once
        again.sendall(b"0123456789")
        assert exactly(again, 10) == b"0123456789"


def test_cut_after_nothing_cuts_at_once(proxy: Proxy, client: socket.socket) -> None:
    client.sendall(b"x")
    exactly(client, 1)
    assert proxy.cut_after(0).is_set()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_a_dead_server_looks_dead_through_the_proxy() -> None:
    with contextlib.closing(Echo()) as gone:
        address = gone.address
    # The reset may come before `connect` has returned.
    with Proxy(address) as proxy, pytest.raises(ConnectionResetError), connect(proxy) as client:
        client.recv(1)


def test_a_taken_port_and_a_strange_target_are_explained(echo: Echo) -> None:
    with pytest.raises(StackError, match="cannot listen"):
        Proxy("127.0.0.1:1", port=int(echo.address.rpartition(":")[2])).start()
    with pytest.raises(StackError, match="host:port"):
        Proxy("somewhere")


def test_close_ends_its_thread_and_its_connections(echo: Echo) -> None:
    proxy = Proxy(echo.address).start()
    link = connect(proxy)
    link.sendall(b"x")
    exactly(link, 1)
    proxy.close()
    proxy.close()
    with pytest.raises(ConnectionResetError):
        link.recv(1)
    link.close()
    assert not [t for t in threading.enumerate() if str(proxy.port) in t.name]
    with pytest.raises(StackError, match="not started"):
        proxy.cut()


def test_in_front_of_a_real_zookeeper(stack: Stack) -> None:
    with Proxy(stack.zookeepers[0].address) as proxy:
        assert probe.zookeeper_mode("127.0.0.1", proxy.port) == "standalone"
        proxy.blackhole()
        assert probe.zookeeper_mode("127.0.0.1", proxy.port, timeout=BRIEF) is None


def test_a_broker_behind_a_proxy_advertises_the_proxy(own_stack: Stack) -> None:
    broker, proxy = own_stack.brokers[0], own_stack.proxies[0]
    assert own_stack.kafka == proxy.address != broker.address
    assert probe.kafka_brokers("127.0.0.1", proxy.port) == {1: proxy.address}
    proxy.refuse()
    assert probe.kafka_brokers("127.0.0.1", proxy.port) is None
    assert broker.ready()
    proxy.heal()
    assert probe.kafka_brokers("127.0.0.1", proxy.port) == {1: proxy.address}
