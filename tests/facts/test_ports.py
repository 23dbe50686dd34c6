"""Reserved ports, and who holds a port."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import pairwise
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Unreadable
from doctor.facts import ports
from doctor.facts.ports import (
    Listeners,
    ListeningSocket,
    ReservedPorts,
    contains_port,
    format_ports,
    list_sockets,
    merge_ranges,
    parse_ports,
    required_hccl_ports,
    single_port_ranges,
)
from doctor.job import LaunchConfig, PortRange
from tests.facts.answers import answered
from tests.facts.garbage import ANYTHING, JSON, runs_on_python_3_6, value_of

PORT = st.integers(1, 65535)


class TestRanges:
    @pytest.mark.parametrize(
        ("text", "output"),
        [
            ("", "none"),
            ("\n", "none"),
            ("8080\n", "8080"),
            ("60000-60031\n", "60000-60031"),
            ("60016-60031,60000-60015", "60000-60031"),
            ("1,2,3,5", "1-3,5"),
            (" 10-20 , 15-30 ", "10-30"),
        ],
    )
    def test_lists_and_ranges(self, text: str, output: str) -> None:
        assert format_ports(parse_ports(text)) == output

    @pytest.mark.parametrize("text", ["sixty", "70000", "2-1", "0-5x", "-5", "1-2-3", "٣"])
    def test_what_is_no_port(self, text: str) -> None:
        with pytest.raises(ValueError, match="is neither a port"):
            parse_ports(text)

    @given(st.lists(st.tuples(PORT, PORT).map(sorted)))
    def test_the_same_ports_in_other_words(self, pairs: list[list[int]]) -> None:
        port_ranges = [PortRange(first, last) for first, last in pairs]
        observed_port_ranges = merge_ranges(port_ranges)
        assert all(before.last + 1 < after.first for before, after in pairwise(observed_port_ranges))
        for port in {edge + step for pair in pairs for edge in pair for step in (-1, 0, 1)}:
            assert contains_port(observed_port_ranges, port) == contains_port(port_ranges, port)

    @given(st.sets(PORT, max_size=50))
    def test_what_is_spelled_can_be_read(self, ports: set[int]) -> None:
        text = format_ports(single_port_ranges(ports))
        assert parse_ports("" if text == "none" else text) == single_port_ranges(ports)


class TestReservedPorts:
    def test_the_two_files(self) -> None:
        assert value_of(ReservedPorts, "8080,60000-60031\n", "32768\t60999\n") == ReservedPorts(
            reserved=(PortRange(8080, 8080), PortRange(60000, 60031)), ephemeral=PortRange(32768, 60999)
        )

    def test_a_port_at_risk(self) -> None:
        fact = value_of(ReservedPorts, "60000-60015\n", "32768 60999\n")
        assert isinstance(fact, ReservedPorts)
        assert [port for port in (29500, 60015, 60016, 60999, 61000) if fact.kernel_may_assign(port)] == [60016, 60999]

    @pytest.mark.parametrize("text", ["", "1", "60999 32768", "1 2 3", "a b", "0 70000"])
    def test_a_range_that_is_none(self, text: str) -> None:
        assert isinstance(value_of(ReservedPorts, "", text), Unreadable)

    @given(ANYTHING.filter(lambda text: text.replace("\n", "").strip()))
    def test_garbage_reserves_nothing_silently(self, text: str) -> None:
        fact = value_of(ReservedPorts, text, "32768 60999")
        if isinstance(fact, ReservedPorts):
            assert set(text) <= set("0123456789-, \n\t\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0"), text
        else:
            assert isinstance(fact, Unreadable)


class TestNeeded:
    def test_thirty_two_from_the_base(self) -> None:
        assert required_hccl_ports(LaunchConfig.from_environment({})) == list(range(60000, 60032))

    def test_the_kernel_chooses(self) -> None:
        with pytest.raises(Absent, match="auto"):
            required_hccl_ports(LaunchConfig.from_environment({"HCCL_HOST_SOCKET_PORT_RANGE": "auto"}))


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["IPv4", "IPv6"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family, address = request.param
    with socket.socket(family) as sock:
        try:
            sock.bind((address, 0))
        except OSError as error:
            pytest.skip(f"{address}: {error}")
        sock.listen()
        yield sock


@pytest.mark.parametrize(
    ("local", "expected"),
    [((32768, 60999), 29500), ((20000, 60999), 19999), ((1024, 60999), 61000), ((1024, 65535), None)],
)
def test_the_port_for_the_master_is_outside_of_the_local_ports(local: tuple[int, int], expected: int | None) -> None:
    assert ReservedPorts(reserved=(), ephemeral=PortRange(*local)).port_outside == expected


class TestListeners:
    def test_a_port_and_who_holds_it(self, listener: socket.socket) -> None:
        address, port = listener.getsockname()[:2]
        listeners = answered(Listeners, list_sockets({}))
        (entry,) = (entry for entry in listeners.on_port(port) if entry.address == address)  # another may have :: or *
        assert (entry.address, entry.listening, entry.pid) == (address, True, os.getpid())
        assert "python" in entry.command

    @pytest.mark.parametrize("alone", [0, 1])
    def test_whether_a_listener_of_all_addresses_takes_ipv4_too(self, alone: int) -> None:
        with socket.socket(socket.AF_INET6) as server:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, alone)
            try:
                server.bind(("::", 0))
            except OSError as error:
                pytest.skip(str(error))
            server.listen()
            (entry,) = answered(Listeners, list_sockets({})).on_port(server.getsockname()[1])
        assert entry.ipv6_only == bool(alone)

    def test_a_connection_counts_for_the_ports_that_are_asked_for(self, listener: socket.socket) -> None:
        with socket.create_connection(listener.getsockname()[:2]) as mine:
            port = mine.getsockname()[1]
            assert answered(Listeners, list_sockets({})).on_port(port) == ()
            (entry,) = answered(Listeners, list_sockets({"ports": [port]})).on_port(port)
            assert not entry.listening

    def test_where_the_kernel_does_not_diagnose_its_table_says_the_same(
        self, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_connection(listener.getsockname()[:2]) as mine:
            both = [listener.getsockname()[1], mine.getsockname()[1]]
            diagnosed = answered(Listeners, list_sockets({"ports": both}))
            monkeypatch.setattr(ports, "_diagnosed_sockets", Mock(side_effect=OSError(2, "No such file or directory")))
            listed = answered(Listeners, list_sockets({"ports": both}))
            for port in both:  # who listens for IPv6 alone stands in no table
                expected = [msgspec.structs.replace(entry, ipv6_only=False) for entry in diagnosed.on_port(port)]
                assert list(listed.on_port(port)) == expected != []

    @pytest.mark.parametrize("kernel", ["says who it is", "says nothing"])
    @pytest.mark.parametrize("reuses", [0, 1])
    def test_a_port_that_is_bound_alone_is_taken_unless_both_share_it(
        self, reuses: int, kernel: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if kernel == "says nothing":
            diagnosed = ports._diagnosed_sockets
            monkeypatch.setattr(ports, "_diagnosed_sockets", lambda family, states: diagnosed(family, states & 0xFFF))
        with socket.socket() as mine:
            mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuses)
            mine.bind(("127.0.0.1", 0))
            port = mine.getsockname()[1]
            assert answered(Listeners, list_sockets({})).holders(port) == []  # none of the job's
            holders = answered(Listeners, list_sockets({"ports": [port]})).holders(port)
        assert [(one.port, one.listening, one.bound) for one in holders] == [(port, False, True)] * (not reuses)
        assert answered(Listeners, list_sockets({"ports": [port]})).holders(port) == []

    def test_another_users_process_is_not_seen(self) -> None:
        answer = {"tables": 2, "sockets": [{"port": 5, "address": "::", "listening": True, "user": "ann"}]}
        (sample_socket,) = answered(Listeners, answer).sockets
        assert sample_socket == ListeningSocket(5, "::", True, "ann")
        assert "user ann" in sample_socket.owner
        assert "without root" in sample_socket.owner

    def test_the_port_that_a_remedy_offers_is_free(self) -> None:
        taken = [{"port": port, "address": "::", "listening": True, "user": "ann"} for port in (29500, 29501, 29504)]
        listeners = answered(Listeners, {"tables": 2, "sockets": taken})
        assert isinstance(listeners, Listeners)
        assert (listeners.free_behind(29500), listeners.free_behind(29500, 3)) == (29502, 29505)
        assert listeners.free_behind(65535) is None

    def test_no_table_is_not_no_listener(self) -> None:
        assert isinstance(answered(Listeners, {"tables": 0, "sockets": []}), Unreadable)

    @given(JSON)
    def test_anything_else(self, value: object) -> None:
        assert isinstance(answered(Listeners, value), Unreadable)

    def test_the_source_that_is_sent(self) -> None:
        assert runs_on_python_3_6(list_sockets)
