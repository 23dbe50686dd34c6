"""Paths that lose large packets: told from a host that is slow, by each transport, direct and behind a jump host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from doctor.transport import TransportError

if TYPE_CHECKING:
    from tests.transport.conftest import Ground

pytestmark = pytest.mark.hosts
LOSES_LARGE = """\
table inet hole {{
 chain c {{
  type filter hook input priority 0
  ip saddr {0} meta length > 1230 drop
 }}
}}
"""
"""A path from an address whose MTU is below that of both ends, and that does not say so."""
LATER = "a part of its answer is missing, and later parts have come, while a new connection is answered"
LATE = "the command did not end within 5 s"
ECHO = f"{LATE}: 256 bytes come back from it over a new connection, and 6000 do not"
MANY = "head -c 30000 /dev/zero"
"""An answer whose first ten segments, which the kernel sends at once (RFC 6928), are large: none of them comes."""


@contextmanager
def hole(ground: Ground, source: str, at: str = "") -> Iterator[None]:
    """Large packets from the host ``source`` are lost before ``at``; empty: before this machine.

    Each packet is one segment, as on a wire.
    """
    rules = LOSES_LARGE.format(ground.fleet.addresses[source])
    with ground.fleet.broken(source, "ip link set dev eth0 gso_max_segs 1"):
        if at:
            with ground.fleet.broken(at, nft=rules):
                yield
            return
        ground.fleet.run(["nft", "-f", "-"], input=rules, check=True)
        try:
            yield
        finally:
            ground.fleet.run(["nft", "delete", "table", "inet", "hole"], check=True)


def late_error(
    ground: Ground, name: str, host: str, command: str, stdin: bytes = b"", jump: str = ""
) -> TransportError:
    lines = f"Host {host}\n ProxyJump {jump}\n" if jump else ""
    transport = ground.ssh(lines, connect_timeout=4.0) if name == "ssh" else ground.openssh(lines, connect_timeout=4.0)
    with pytest.raises(TransportError) as error:
        transport.run(host, command, stdin, 5.0)
    return error.value


def test_large_packets_to_a_host_are_lost(ground: Ground) -> None:
    """Small ones pass: connection and login are made, and then data stops."""
    host, rules = ground.good[6], LOSES_LARGE.replace("ip saddr {0} ", "").format()
    with ground.fleet.broken(host, nft=rules):
        error = late_error(ground, "ssh", host, "cat", b"x" * 60_000)
    lost = r"60\d{3} bytes are not acknowledged, sent again [3-9] times, while a new connection is answered"
    assert re.fullmatch(f"{LATE}: {lost}", error.text), error.text
    assert f"From this machine, `ping -c 3 -s 56 {ground.fleet.addresses[host]}`" in error.hint


def test_large_packets_of_a_host_are_lost(ground: Ground) -> None:
    """The last one is small, and comes."""
    host = ground.good[6]
    with hole(ground, host):
        error = late_error(ground, "ssh", host, "head -c 3000 /dev/zero")
    assert error.text == f"{LATE}: {LATER}"


@pytest.mark.sample
@pytest.mark.parametrize("name", ["ssh", "openssh"])
@pytest.mark.parametrize("jump", [False, True])
def test_all_that_a_host_sends_at_once_is_lost(ground: Ground, name: str, jump: bool) -> None:
    gate, host = ground.good[5] if jump else "", ground.good[6]
    with hole(ground, host, gate):
        error = late_error(ground, name, host, MANY, jump=gate)
    of_kernel = [f"{LATE}: {LATER}"] if (name, jump) == ("ssh", False) else []  # where a small packet came as well
    assert error.kind == "timeout"
    assert error.text in (ECHO, *of_kernel)
    assert error.hint.startswith(f"From {gate or 'this machine'}, `ping -c 3 -s 56 {ground.fleet.addresses[host]}`")


@pytest.mark.parametrize("jump", [False, True])
def test_the_login_of_ssh_is_lost(ground: Ground, jump: bool) -> None:
    """Its lists of algorithms need a large packet."""
    gate, host = ground.good[5] if jump else "", ground.good[6]
    rules = LOSES_LARGE.replace("ip saddr {0} ", "").format()
    with ground.fleet.broken(host, nft=rules):
        error = late_error(ground, "openssh", host, MANY, jump=gate)
    where = f"port 22 of {ground.fleet.addresses[host]}"
    text = f"{where} speaks SSH, and the login did not finish within 4 s{ECHO.removeprefix(LATE)}"
    assert (error.kind, error.text) == ("silent", text)


@pytest.mark.sample
@pytest.mark.parametrize("name", ["ssh", "openssh"])
@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("fault", ["", "hang"])
def test_a_host_that_stands_still_has_lost_nothing(ground: Ground, name: str, jump: bool, fault: str) -> None:
    """Its command alone, or every command on it: the kernel acknowledges what a stopped shell does not read."""
    gate, host = ground.good[5] if jump else "", ground.faulty[fault] if fault else ground.good[6]
    error = late_error(ground, name, host, "sleep 60", b"x" * 6_000_000, gate)
    assert (error.kind, error.text, error.hint) == ("timeout", LATE, "")


def test_a_shell_that_stands_still_has_lost_nothing(ground: Ground) -> None:
    """What it was sent is acknowledged, and new shells answer."""
    with ground.fleet.broken(ground.good[6]):
        error = late_error(ground, "ssh", ground.good[6], "kill -STOP $PPID; sleep 9", b"x" * 6_000_000)
    assert (error.text, error.hint) == (LATE, "")
