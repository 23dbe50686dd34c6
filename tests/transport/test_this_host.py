"""Which host of a list is this machine: decided by where a connection would lead, not by what anybody calls himself."""

from __future__ import annotations

import os
import socket

import pytest

from doctor.transport.this_host import ThisHost, Way, resolve_name, this_host

NAMES = {
    "node1": ["10.0.0.1"],
    "node1.cluster": ["10.0.0.1"],
    "trainer": ["10.0.0.1"],
    "node1-ib": ["10.1.0.1"],
    "both": ["10.0.0.1", "10.1.0.1"],
    "node2": ["10.0.0.2"],
    "round-robin": ["10.0.0.1", "10.0.0.2"],
    "localhost": ["127.0.0.1"],
    "copied-image": ["127.0.1.1"],
    "image-of-debian": ["127.0.1.1"],
    "vip": ["2001:db8::1"],
}
ADDRESSES = ("127.0.0.1", "::1", "10.0.0.1", "10.1.0.1", "2001:db8::1", "172.17.0.1")


def machine(nodename: str = "node1", scheduler: str = "", container: bool = False) -> ThisHost:
    return ThisHost(nodename, lambda: ADDRESSES, lambda name: NAMES.get(name, []), scheduler, container)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("node1", ("here", "10.0.0.1")), ("node1.cluster", ("here", "10.0.0.1")), ("trainer", ("here", "10.0.0.1")),
        ("node1-ib", ("here", "10.1.0.1")), ("both", ("here", "10.0.0.1")), ("10.1.0.1", ("here", "10.1.0.1")),
        ("2001:0db8:0::1", ("here", "2001:db8::1")), ("vip", ("here", "2001:db8::1")), ("localhost", ("here", "")),
        ("127.0.0.1", ("here", "")), ("127.0.1.1", ("here", "")), ("LOCALHOST.", ("here", "")),
        ("localhost.localdomain", ("here", "")), ("ip6-localhost", ("here", "")),
        ("node2", ("elsewhere", "")), ("10.0.0.2", ("elsewhere", "")), ("round-robin", ("elsewhere", "")),
        ("copied-image", ("elsewhere", "")), ("no-such-name", ("elsewhere", "")), ("10.0.0.1%eth0", ("elsewhere", "")),
    ],
)  # fmt: skip
def test_where_a_connection_leads(host: str, expected: tuple[str, str]) -> None:
    assert machine().place(host, Way(host)) == expected


def test_an_alias_of_another_name_is_not_this_host_for_being_called_localhost() -> None:
    assert machine().place("localhost.", Way("no-such-name")) == ("elsewhere", "")


def test_the_own_name_at_a_loopback_address_is_here() -> None:
    """Debian's installer writes it into /etc/hosts."""
    assert machine("image-of-debian").place("image-of-debian", Way("image-of-debian")) == ("here", "")


@pytest.mark.parametrize("nodename", ["node2", "node2.cluster"])
def test_two_hosts_with_one_name(nodename: str) -> None:
    """This machine calls itself node2, as another one does, whose address the name has."""
    assert machine(nodename).place("node2", Way("node2")) == ("elsewhere", "")
    assert machine(nodename).place("node1", Way("node1")) == ("here", "10.0.0.1")


def test_a_name_without_an_address() -> None:
    """It must be the own one; two domains are two names; and no other host of the list may be this one."""
    for nodename_here, host, place in (
        ("worker-0", "worker-0", "here"), ("worker-0", "worker-0.job", "here"), ("Worker-0.job", "worker-0", "here"),
        ("worker-0.a", "worker-0.b", "elsewhere"), ("worker-0", "worker-1", "elsewhere"),
    ):  # fmt: skip
        assert machine(nodename_here).place(host, Way(host), (host, "node2")) == (place, "")
    assert machine("worker-0").place("worker-0", Way("worker-0"), ("worker-0", "node1")) == ("elsewhere", "")


def test_the_schedulers_name() -> None:
    assert machine(scheduler="slurm7").place("slurm7", Way("slurm7")) == ("here", "")
    assert machine(scheduler="slurm7").place("slurm7", Way("10.0.0.1")) == ("here", "10.0.0.1")
    stale = machine(scheduler="node2").place("node2", Way("node2"))
    assert stale == ("here if unreachable", ""), "a variable that another host's process has passed on"


def test_what_the_ssh_configuration_says() -> None:
    for way in (Way("10.0.0.2"), Way("127.0.0.1", 2201), Way("10.0.0.1", 2201), Way("10.0.0.1", via_another=True)):
        assert machine("me").place("c1", way) == ("elsewhere", ""), (
            "another machine behind a forwarded port, or a proxy"
        )
    assert machine("me").place("c1", Way("10.0.0.1")) == ("here", "10.0.0.1")
    assert machine("c1").place("c1", Way("10.0.0.1", 2201)) == ("here if unreachable", "10.0.0.1")


def test_another_view_of_this_machine_is_tried_first() -> None:
    """SSH leads to the container's host; the account that the list names reads, or none."""
    assert machine(container=True).place("node1", Way("node1"))[0] == "here if unreachable"
    assert machine().place("node1", Way("node1", user="nobody"))[0] == "elsewhere"


@pytest.mark.parametrize(
    ("mark", "place"),
    [
        ("/.singularity.d", "here"),
        ("/.dockerenv", "here if unreachable"),
        ("/run/.containerenv", "here if unreachable"),
    ],
)
def test_a_container_with_the_network_of_its_host_is_read_from_inside(
    mark: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job runs in Apptainer's container, and sees what it has; SSH would lead out of it."""
    monkeypatch.setattr(os.path, "exists", lambda path: path == mark)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("doctor.transport.this_host.resolve_name", lambda name: ())
    name = socket.gethostname()
    assert this_host().place(name, Way(name))[0] == place


def test_names_are_resolved_in_time() -> None:
    assert "127.0.0.1" in resolve_name("localhost")
    assert resolve_name("no-such-host.invalid", 2.0) == ()
    assert resolve_name("x" * 300) == ()
