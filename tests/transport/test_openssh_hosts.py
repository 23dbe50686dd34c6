"""The same hosts and faults by the ssh program: the same kinds of trouble, in the same time."""

from __future__ import annotations

import math
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from doctor.transport import CommandResult, TransportError

if TYPE_CHECKING:
    from tests.transport.conftest import Ground

pytestmark = pytest.mark.hosts


def stop(ground: Ground, host: str, command: str = "true", timeout: float = 5.0, **options: object) -> TransportError:
    with pytest.raises(TransportError) as error:
        ground.openssh(**options).run(host, command, b"x" * 60_000, timeout)  # type: ignore[arg-type]
    return error.value


def children() -> set[int]:
    """The processes that this one has started and not yet reaped."""
    return {child.pid for child in psutil.Process().children()}


class TestAGoodHost:
    def test_says_how_a_command_went(self, ground: Ground) -> None:
        result = ground.openssh().run(ground.good[0], "hostname; head -c 60000 | wc -c >&2; exit 3", b"x" * 60_000, 10)
        assert (result.code, result.out, result.err) == (3, f"{ground.good[0]}\n".encode(), b"60000\n")

    def test_exit_status_255_is_the_commands_own(self, ground: Ground) -> None:
        result = ground.openssh().run(ground.good[0], "echo Permission denied >&2; exit 255", b"", 10)
        assert (result.code, result.err) == (255, b"Permission denied\n")

    def test_a_command_ended_by_a_signal_did_not_go_well(self, ground: Ground) -> None:
        error = stop(ground, ground.good[0], "kill -9 $$")
        assert (error.kind, error.text) == ("error", "the command was killed by a signal")

    def test_sees_no_end_of_stdin_before_the_command_has_ended(self, ground: Ground) -> None:
        error = stop(ground, ground.good[0], "cat >/dev/null; echo its end", timeout=0.5, connect_timeout=20.0)
        assert error.kind == "timeout"
        assert error.partial_result is not None
        assert error.partial_result.out == b""

    def test_is_reached_as_its_configuration_says(self, ground: Ground) -> None:
        first, second, host = ground.good[:3]
        lines = f"Host {host}\n ProxyJump {first},{second}\n RemoteCommand false\n RequestTTY force\n"
        lines += " ControlMaster auto\n ControlPath ~/.ssh/should-not-be-%C\n ControlPersist yes\n"
        result = ground.openssh(lines).run(host, "echo ${SSH_CONNECTION%% *}; tty", b"", 10)
        assert result.out.decode().split("\n")[0] == ground.fleet.addresses[second]
        assert b"not a tty" in result.out
        assert not list(Path("~/.ssh").expanduser().glob("should-not-be*"))


class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "kind", "message"),
        [
            ("refuse", "refused", "port 22 of 10.78.1.9 refuses connections: nothing listens there"),
            ("drop", "dropped", "no answer from port 22 of 10.78.1.10"),
            ("silent", "silent", "port 22 of 10.78.1.11 accepts connections, and sent no SSH banner"),
            ("wrong-key", "key-changed", "its host key has changed: it shows SHA256:"),
            ("deny", "auth", "the login as root was refused: root@10.78.1.13: Permission denied (publickey)."),
            ("hang", "timeout", "the command did not end within 0.5 s"),
            ("flood", "flood", "it printed more than 8 MiB, and was closed"),
            ("cut", "lost", "the connection was cut before the command ended"),
        ],
    )
    def test_each_has_its_kind(self, ground: Ground, fault: str, kind: str, message: str) -> None:
        before, began = children(), time.monotonic()
        # The others get through to sshd, when it has a CPU.
        connect_timeout = 1.0 if fault in ("drop", "silent") else 20.0
        timeout = 0.5 if fault == "hang" else 20
        error = stop(ground, ground.faulty[fault], timeout=timeout, connect_timeout=connect_timeout)
        assert (error.kind, error.text[: len(message)]) == (kind, message)
        assert time.monotonic() - began < (12 if connect_timeout == 1.0 else 40)
        assert children() <= before

    def test_the_hint_for_a_changed_key_is_the_command(self, ground: Ground) -> None:
        host = ground.faulty["wrong-key"]
        hint = f"ssh-keygen -R {ground.fleet.addresses[host]} -f {ground.fleet.known_hosts}"
        assert stop(ground, host).hint == hint

    def test_an_unknown_key(self, ground: Ground, tmp_path: Path) -> None:
        path = tmp_path / "known"
        config = {"UserKnownHostsFile": str(path)}
        error = stop(ground, ground.good[0], config=config)
        address = ground.fleet.addresses[ground.good[0]]
        assert (error.kind, error.hint) == ("key-unknown", f"ssh-keyscan -p 22 -t ed25519 {address} >> {path}")
        assert ground.openssh(config=config, accept_new=True).run(ground.good[0], "true", b"", 10).code == 0
        assert path.read_text().startswith(address)

    def test_a_name_that_does_not_resolve(self, ground: Ground) -> None:
        error = stop(ground, "far", lines="Host far\n HostName far.invalid\n")
        assert (error.kind, error.text) == ("name", "the name far.invalid does not resolve")

    @pytest.mark.parametrize(
        ("fault", "message"), [("refuse", "Connection refused"), ("wrong-key", "Host key verification failed")]
    )
    def test_a_jump_host_that_fails_is_named(self, ground: Ground, fault: str, message: str) -> None:
        gate = ground.faulty[fault]
        error = stop(ground, ground.good[0], lines=f"Host {ground.good[0]}\n ProxyJump {gate}\n")
        assert error.kind == "jump"
        assert error.text.startswith(f"its jump host {gate} did not connect to it: ")
        assert message in error.text

    def test_a_late_command_ends_on_the_host_too(self, ground: Ground) -> None:
        error = stop(ground, ground.good[1], "echo $$; cat >/dev/null", timeout=3.0, connect_timeout=20.0)
        assert error.partial_result is not None
        assert ground.has_ended(ground.good[1], error.partial_result.out.decode())
        assert ground.sessions(ground.good[1]) == 0


@pytest.mark.timeout(600)  # its own limits grow with what one login takes
def test_a_fleet_with_faults_ends_in_time_and_every_good_host_is_complete(ground: Ground) -> None:
    began, single = time.monotonic(), ground.openssh()
    single.run(ground.good[0], "true", b"", 10)
    single.close()
    alone = time.monotonic() - began
    connect_timeout = math.ceil(2 + 8 * alone)  # sixteen good hosts answer at once, and share the CPUs
    openssh, before = ground.openssh(connect_timeout=float(connect_timeout)), children()

    def run(host: str) -> CommandResult | TransportError:
        try:
            return openssh.run(
                host, "hostname; seq 1000", b"x" * 60_000, 4.0 if host == ground.faulty["hang"] else 30.0
            )
        except TransportError as error:
            return error

    began = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        results = dict(zip(ground.fleet.hosts, pool.map(run, ground.fleet.hosts), strict=True))
    command, echo = connect_timeout + 4, connect_timeout + 3  # of the host whose commands stand still; then one echo
    assert time.monotonic() - began < command + echo + 1 + 16 * alone
    complete = "".join(f"{number}\n" for number in range(1, 1001))
    assert {host: getattr(results[host], "out", None) for host in ground.good} == {
        host: f"{host}\n{complete}".encode() for host in ground.good
    }
    assert [getattr(results[host], "kind", "reached") for host in ground.faulty.values()] == [
        "refused",
        "dropped",
        "silent",
        "key-changed",
        "auth",
        "timeout",
        "flood",
        "lost",
    ]
    openssh.close()
    assert children() <= before


def test_close_ends_what_runs_and_leaves_nothing(ground: Ground) -> None:
    openssh, before = ground.openssh(), children()
    folder, stops = openssh._folder, []

    def run() -> None:
        with pytest.raises(TransportError) as error:
            openssh.run(ground.good[0], "echo up >/tmp/up; cat >/dev/null", b"", 60)
        stops.append(error.value.kind)

    ground.fleet.enter(ground.good[0], "rm -f /tmp/up")
    thread = threading.Thread(target=run)
    thread.start()
    ground.fleet.enter(ground.good[0], "for i in $(seq 200); do [ -e /tmp/up ] && exit; sleep .05; done; exit 1")
    assert oct(os.stat(folder).st_mode & 0o777) == "0o700"
    openssh.close()
    thread.join(5)
    assert stops == ["budget"]
    assert not folder.exists()
    assert children() <= before
    assert ground.sessions(ground.good[0]) == 0
