"""Real sshd's: what goes well, and every fault, each named rightly, in time, with nothing left on either side."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from doctor.remote.request import Request
from doctor.transport import CommandResult, TransportError

if TYPE_CHECKING:
    from tests.transport.conftest import Ground

pytestmark = pytest.mark.hosts
REACHES_FOR_STDIN = "echo $$; cat >/dev/null"
"""Ends when its stdin does, as our collector does."""


def stop(ground: Ground, fault: str, command: str = "true", timeout: float = 5.0, **options: object) -> TransportError:
    with pytest.raises(TransportError) as error:
        ground.ssh(**options).run(ground.faulty[fault], command, b"x" * 60_000, timeout)  # type: ignore[arg-type]
    return error.value


class TestAGoodHost:
    def test_says_how_a_command_went(self, ground: Ground) -> None:
        before = time.time()
        result = ground.ssh().run(ground.good[0], "hostname; echo err >&2; exit 3", b"", 10)
        assert (result.code, result.out, result.err) == (3, f"{ground.good[0]}\n".encode(), b"err\n")
        assert before <= result.sent <= result.received <= time.time()

    def test_death_by_a_signal_is_negative(self, ground: Ground) -> None:
        assert ground.ssh().run(ground.good[0], "kill -TERM $$", b"", 10).code == -15

    def test_takes_in_all_of_stdin(self, ground: Ground) -> None:
        content = os.urandom(3_000_000)
        result = ground.ssh().run(ground.good[0], f"head -c {len(content)} | md5sum", content, 20)
        assert result.out.split()[0].decode() == hashlib.md5(content).hexdigest()

    def test_sees_no_end_of_stdin_before_the_command_has_ended(self, ground: Ground) -> None:
        with pytest.raises(TransportError) as error:
            ground.ssh().run(ground.good[0], "read line; echo got $line; cat; echo its end", b"word\n", 0.5)
        assert error.value.partial_result is not None
        assert error.value.partial_result.out == b"got word\n"

    def test_keeps_a_command_that_waits_for_more(self, ground: Ground) -> None:
        ssh, host = ground.ssh(), ground.good[0]
        script = "echo $$ begins; while read line; do echo $$ $line; echo end; done"
        first, second = (ssh.run_kept(host, Request(script, b"", b"a\n", "", end=b"end\n"), 10).out for _ in range(2))
        pid = first.split()[0]
        assert (first, second) == (b"%s begins\n%s a\nend\n" % (pid, pid), b"%s 00000002a\nend\n" % pid)
        assert b"begins" in ssh.run_kept(ground.good[1], Request("echo begins", b"", b"", ""), 10).out
        ssh.end_kept()
        assert ssh.run_kept(host, Request(script, b"", b"a\n", "", end=b"end\n"), 10).out.split()[1] == b"begins"
        ssh.close()
        assert ground.sessions(host) == 0

    def test_a_kept_command_that_has_ended_is_started_anew(self, ground: Ground) -> None:
        ssh, host = ground.ssh(), ground.good[0]
        request = Request("read line; echo $line; echo end; exec sleep 0", b"", b"a\n", "", end=b"end\n")
        assert ssh.run_kept(host, request, 10).out == b"a\nend\n"
        assert ssh.run(host, "true", b"", 10).code == 0  # by now the other has ended
        assert ssh.run_kept(host, request, 10).out in (b"a\nend\n", b"")

    def test_keeps_its_connection_for_the_next_round(self, ground: Ground) -> None:
        ssh = ground.ssh()
        first, second = (ssh.run(ground.good[0], "echo $PPID", b"", 10).out for _ in range(2))
        assert first == second
        ssh.close()
        assert ground.sessions(ground.good[0]) == 0

    def test_that_hung_up_between_rounds_is_reached_anew(self, ground: Ground) -> None:
        ssh = ground.ssh()
        first = ssh.run(ground.good[0], "echo $PPID", b"", 10).out
        ground.fleet.enter(ground.good[0], ["kill", "-9", first.decode().strip()])
        assert ssh.run(ground.good[0], "echo $PPID", b"", 10).out != first

    def test_with_a_full_disk_is_reached_all_the_same(self, ground: Ground) -> None:
        with ground.fleet.broken(ground.good[7], full_disk=True):
            result = ground.ssh().run(ground.good[7], "echo here; echo x >/tmp/x", b"", 10)
        assert (result.out, b"No space left" in result.err) == (b"here\n", True)

    @pytest.mark.parametrize("shell", ["/bin/csh", "/usr/bin/fish"])
    def test_with_another_login_shell(self, ground: Ground, shell: str) -> None:
        with ground.fleet.broken(ground.good[7], shell=shell):
            assert ground.ssh().run(ground.good[7], "sh -c 'echo here'", b"", 10).out == b"here\n"


class TestFaults:
    def test_nothing_listens(self, ground: Ground) -> None:
        error = stop(ground, "refuse")
        address = ground.fleet.addresses[ground.faulty["refuse"]]
        assert error.kind == "refused"
        assert error.text == f"port 22 of {address} refuses connections: nothing listens there"

    @pytest.mark.parametrize(
        ("fault", "kind", "message"),
        [
            ("drop", "dropped", "no answer from port 22 of "),
            ("silent", "silent", "accepts connections, and sent no SSH banner within 0.7 s"),
        ],
    )
    def test_no_answer(self, ground: Ground, fault: str, kind: str, message: str) -> None:
        began = time.monotonic()
        error = stop(ground, fault, connect_timeout=0.7)
        assert (error.kind, message in error.text) == (kind, True)
        assert 0.6 < time.monotonic() - began < 2.5

    def test_the_configuration_has_a_time_of_its_own_for_a_host(self, ground: Ground) -> None:
        began = time.monotonic()
        host = ground.faulty["drop"]
        stop(ground, "drop", lines=f"Host {host}\n ConnectTimeout 1\n", connect_timeout=None)
        assert time.monotonic() - began < 3

    def test_a_changed_host_key(self, ground: Ground) -> None:
        host = ground.faulty["wrong-key"]
        error = stop(ground, "wrong-key", accept_new=True)
        assert error.kind == "key-changed"
        assert "its host key has changed: it shows ssh-ed25519 SHA256:" in error.text
        assert error.hint == f"ssh-keygen -R {ground.fleet.addresses[host]} -f {ground.fleet.known_hosts}"

    def test_a_refused_login(self, ground: Ground) -> None:
        error = stop(ground, "deny")
        assert error.kind == "auth"
        assert error.text == f"the login as root was refused: tried {ground.key}"

    def test_a_hanging_command(self, ground: Ground) -> None:
        began = time.monotonic()
        error = stop(ground, "hang", timeout=0.7)
        assert (error.kind, error.text) == ("timeout", "the command did not end within 0.7 s")
        assert time.monotonic() - began < 20  # with the echoes that tell whether its large packets are lost

    def test_a_late_command_ends_on_the_host_too(self, ground: Ground) -> None:
        with pytest.raises(TransportError) as error:
            ground.ssh().run(ground.good[1], REACHES_FOR_STDIN, b"x" * 60_000, 0.5)
        assert error.value.kind == "timeout"
        assert error.value.partial_result is not None
        assert ground.has_ended(ground.good[1], error.value.partial_result.out.decode())
        assert ground.sessions(ground.good[1]) == 0

    def test_a_flood(self, ground: Ground) -> None:
        began = time.monotonic()
        error = stop(ground, "flood", timeout=60)
        assert (error.kind, error.text) == ("flood", "it printed more than 8 MiB, and was closed")
        assert error.partial_result is not None
        assert (8 << 20) < len(error.partial_result.out) < (10 << 20)
        assert time.monotonic() - began < 10
        assert ground.sessions(ground.faulty["flood"]) == 0

    def test_a_flood_on_stderr(self, ground: Ground) -> None:
        with pytest.raises(TransportError) as error:
            ground.ssh(max_output=100_000).run(ground.good[1], "exec cat /dev/zero >&2", b"", 30)
        assert error.value.kind == "flood"

    def test_a_cut_connection(self, ground: Ground) -> None:
        error = stop(ground, "cut")
        assert (error.kind, error.text) == ("lost", "the connection was cut before the command ended")
        assert error.partial_result is not None
        assert (error.partial_result.code, error.partial_result.out) == (-1, b"first line\n")

    def test_too_many_at_the_door(self, ground: Ground) -> None:
        host, only_one = ground.good[7], "sed -i 's/^MaxStartups.*/MaxStartups 1/' /etc/ssh/sshd_config"
        with ground.fleet.broken(host, setup=only_one, sshd=["LogLevel ERROR"]):
            first = socket.create_connection((ground.fleet.addresses[host], 22))
            first.recv(100)
            with first, pytest.raises(TransportError) as error:
                ground.ssh().run(host, "true", b"", 5)
        assert error.value.kind == "lost"
        assert "closed the connection at once" in error.value.text
        assert "MaxStartups" in error.value.hint


def test_a_fleet_with_faults_ends_in_time_and_every_good_host_is_complete(ground: Ground) -> None:
    """Connect timeout + 5 s, and a CPU's time for each, whatever the faults; a second round for the good ones."""
    began, single = time.monotonic(), ground.ssh()
    single.run(ground.good[0], "true", b"", 10)
    single.close()
    alone = time.monotonic() - began
    connect_timeout = 2 + 8 * alone  # sixteen good hosts answer at once, and share the CPUs
    ssh = ground.ssh(connect_timeout=connect_timeout)
    before = set(threading.enumerate())

    def run(host: str) -> CommandResult | TransportError:
        try:
            return ssh.run(host, "hostname; seq 1000", b"x" * 60_000, 4.0 if host == ground.faulty["hang"] else 30.0)
        except TransportError as error:
            return error

    began = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        results = dict(zip(ground.fleet.hosts, pool.map(run, ground.fleet.hosts), strict=True))
        took = time.monotonic() - began
        again = dict(zip(ground.good, pool.map(run, ground.good), strict=True))
    ssh.close()
    complete = "".join(f"{number}\n" for number in range(1, 1001))
    for round_ in (results, again):
        assert {host: getattr(round_[host], "out", None) for host in ground.good} == {
            host: f"{host}\n{complete}".encode() for host in ground.good
        }
    kinds = {fault: getattr(results[host], "kind", "reached") for fault, host in ground.faulty.items()}
    assert kinds == {
        "refuse": "refused",
        "drop": "dropped",
        "silent": "silent",
        "wrong-key": "key-changed",
        "deny": "auth",
        "hang": "timeout",
        "flood": "flood",
        "cut": "lost",
    }
    assert took < connect_timeout + 5 + 16 * alone
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert set(threading.enumerate()) <= before
    assert [ground.sessions(host) for host in ground.good] == [0] * len(ground.good)


MEASURE = """
import json, resource, sys, threading
from doctor.transport import TransportError
from doctor.transport.options import SshOptions
from doctor.transport.ssh.ssh_transport import Ssh
ssh = Ssh(SshOptions(config=sys.argv[1]))
def run():
    try:
        ssh.run(sys.argv[2], "true", b"", 60)
    except TransportError as error:
        kinds.append(error.kind)
    except BaseException as error:
        kinds.append(repr(error))
kinds = []
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
threads = [threading.Thread(target=run) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
ssh.close()
print(json.dumps([kinds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) >> 10]))
"""


def test_floods_do_not_fill_the_memory(ground: Ground) -> None:
    """Four floods of 200 MB at once, cut at 8 MiB each."""
    argv = [sys.executable, "-c", MEASURE, ground.config(), ground.faulty["flood"]]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": "."})
    assert done.stderr == ""
    kinds, grown = json.loads(done.stdout)
    assert kinds == ["flood"] * 4
    assert grown < 80
