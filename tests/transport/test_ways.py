"""The way to a host as the user's ssh configuration has it: jump hosts, programs, ports and names."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from doctor.transport import TransportError

if TYPE_CHECKING:
    from tests.transport.conftest import Ground

pytestmark = pytest.mark.hosts
FROM = "echo ${SSH_CONNECTION%% *}"
"""Tells the address that the connection came from."""


def stop(ground: Ground, host: str, lines: str, **options: object) -> TransportError:
    with pytest.raises(TransportError) as error:
        ground.ssh(lines, **options).run(host, "true", b"", 5)  # type: ignore[arg-type]
    return error.value


class TestJumpHosts:
    def test_a_chain_of_two(self, ground: Ground) -> None:
        first, second, host = ground.good[:3]
        ssh = ground.ssh(f"Host {host}\n ProxyJump {first},{second}\n")
        assert ssh.run(host, FROM, b"", 10).out.decode().strip() == ground.fleet.addresses[second]
        output = ground.fleet.enter(second, "ss -Htn state established '( sport = :22 )'").stdout
        assert ground.fleet.addresses[first] in output

    def test_a_jump_host_may_have_one_itself(self, ground: Ground) -> None:
        first, second, host = ground.good[:3]
        ssh = ground.ssh(f"Host {host}\n ProxyJump {second}\nHost {second}\n ProxyJump {first}\n")
        assert ssh.run(host, FROM, b"", 10).out.decode().strip() == ground.fleet.addresses[second]
        assert ssh.run(second, FROM, b"", 10).out.decode().strip() == ground.fleet.addresses[first]

    def test_each_hop_follows_its_own_configuration(self, ground: Ground) -> None:
        gate, host = ground.good[:2]
        lines = f"Host {host}\n ProxyJump gate\nHost gate\n HostName {ground.fleet.addresses[gate]}\n User root\n"
        ssh = ground.ssh(lines, config={"User": "nobody-here"}, user="root")
        assert ssh.run(host, FROM, b"", 10).out.decode().strip() == ground.fleet.addresses[gate]

    def test_one_connection_to_it_serves_all_hosts(self, ground: Ground) -> None:
        gate, hosts, before = ground.good[0], ground.good[1:], set(threading.enumerate())
        ssh = ground.ssh(f"Host {' '.join(hosts)}\n ProxyJump {gate}\n")
        with ThreadPoolExecutor(len(hosts)) as pool:
            results = list(pool.map(lambda host: ssh.run(host, "hostname", b"x" * 60_000, 10).out, hosts))
        assert results == [f"{host}\n".encode() for host in hosts]
        output = ground.fleet.enter(gate, "ss -Htn state established '( sport = :22 )'").stdout
        assert len(output.splitlines()) == 1
        ssh.close()
        assert set(threading.enumerate()) <= before
        assert [ground.sessions(host) for host in ground.good] == [0] * len(ground.good)

    def test_its_key_is_checked_too(self, ground: Ground) -> None:
        error = stop(ground, ground.good[0], f"Host {ground.good[0]}\n ProxyJump {ground.faulty['wrong-key']}\n")
        assert error.kind == "jump"
        assert error.text.startswith(f"its jump host {ground.faulty['wrong-key']}: its host key has changed")
        assert error.hint.startswith("ssh-keygen -R")

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ("refuse", "refuses connections"),
            ("drop", "no answer from port 22"),
            ("silent", "no SSH banner within"),
            ("deny", "the login as root was refused"),
        ],
    )
    def test_one_that_cannot_be_reached_is_named(self, ground: Ground, fault: str, message: str) -> None:
        hosts, gate = ground.good[:4], ground.faulty[fault]
        connect_timeout = 1.0 if fault in ("drop", "silent") else 20.0
        ssh = ground.ssh(f"Host {' '.join(hosts)}\n ProxyJump {gate}\n", connect_timeout=connect_timeout)

        def run(host: str) -> TransportError:
            with pytest.raises(TransportError) as error:
                ssh.run(host, "true", b"", 5)
            return error.value

        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            transport_errors = list(pool.map(run, hosts))
        assert {error.kind for error in transport_errors} == {"jump"}
        assert all(
            error.text.startswith(f"its jump host {gate}: ") and message in error.text for error in transport_errors
        )
        assert time.monotonic() - began < connect_timeout + 3

    @pytest.mark.parametrize(("fault", "kind"), [("refuse", "refused"), ("drop", "dropped"), ("silent", "silent")])
    def test_faults_behind_it_are_the_hosts_own(self, ground: Ground, fault: str, kind: str) -> None:
        host = ground.faulty[fault]
        error = stop(ground, host, f"Host {host}\n ProxyJump {ground.good[0]}\n", connect_timeout=2.5)
        assert error.kind == kind
        if kind != "silent":
            assert f"its jump host {ground.good[0]}" in error.text

    def test_a_name_that_it_does_not_know(self, ground: Ground) -> None:
        error = stop(ground, "far", f"Host far\n HostName far.invalid\n ProxyJump {ground.good[0]}\n")
        assert error.kind == "name"
        assert "far.invalid" in error.text

    def test_one_that_forwards_nothing(self, ground: Ground) -> None:
        with ground.fleet.broken(ground.good[7], sshd=["AllowTcpForwarding no"]):
            error = stop(ground, ground.good[0], f"Host {ground.good[0]}\n ProxyJump {ground.good[7]}\n")
        assert error.kind == "jump"
        assert "does not allow forwarding to port 22" in error.text
        assert "AllowTcpForwarding" in error.hint

    def test_that_lead_round_in_a_circle(self, ground: Ground) -> None:
        error = stop(ground, ground.good[0], f"Host *\n ProxyJump {ground.good[1]}\n")
        assert (error.kind, "form a loop" in error.text) == ("jump", True)

    def test_one_that_hung_up_is_reached_anew(self, ground: Ground) -> None:
        gate, host = ground.good[:2]
        ssh = ground.ssh(f"Host {host}\n ProxyJump {gate}\n")
        ssh.run(host, "true", b"", 10)
        ground.fleet.enter(gate, "pkill -9 -f '^sshd: root'")
        assert ssh.run(host, "hostname", b"", 10).out == f"{host}\n".encode()

    def test_the_password_is_not_for_it(self, ground: Ground) -> None:
        """A jump host that asks for a password is told none, not even the one for the hosts."""
        lines = f"Host {ground.good[0]}\n ProxyJump {ground.faulty['deny']}\n"
        error = stop(ground, ground.good[0], lines, password="secret")
        assert error.kind == "jump"
        assert "password" not in error.text


class TestProxyCommand:
    def proxied(self, ground: Ground, command: str) -> str:
        return f"Host {ground.good[0]}\n ProxyCommand {command}\n"

    def via(self, ground: Ground) -> str:
        return f"ssh -F {ground.folder}/ssh_config -W %h:%p {ground.good[1]}"

    def test_it_is_the_way(self, ground: Ground) -> None:
        ssh = ground.ssh(self.proxied(ground, self.via(ground)))
        result = ssh.run(ground.good[0], f"{FROM}; head -c 60000 | wc -c", b"x" * 60_000, 10)
        assert result.out.decode().split() == [ground.fleet.addresses[ground.good[1]], "60000"]

    def test_nothing_of_it_stays(self, ground: Ground) -> None:
        ssh = ground.ssh(self.proxied(ground, f"sh -c 'echo $$ >{ground.folder}/pid; {self.via(ground)}'"))
        ssh.run(ground.good[0], "true", b"", 10)
        pid = int((ground.folder / "pid").read_text())
        os.kill(pid, 0)
        ssh.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    @pytest.mark.parametrize(
        ("command", "message", "seconds"),
        [
            ("sh -c 'echo no way through >&2; exit 1'", "its ProxyCommand could not connect to it: no way through", 60),
            ("/no/such/program", "No such file|not found", 60),
            ("cat /dev/null", "closed the connection at once", 60),
            ("sleep 1000", "no SSH banner within 1 s", 1),
        ],
    )
    def test_one_that_fails_is_named(self, ground: Ground, command: str, message: str, seconds: float) -> None:
        error = stop(ground, ground.good[0], self.proxied(ground, command), connect_timeout=float(seconds))
        assert error.kind == "jump"
        assert any(word in error.text for word in message.split("|"))

    def test_a_host_key_is_checked_through_it(self, ground: Ground) -> None:
        host = ground.faulty["wrong-key"]
        lines = f"Host {host}\n ProxyCommand {self.via(ground)}\n"
        assert stop(ground, host, lines).kind == "key-changed"


def test_the_port_of_the_configuration(ground: Ground) -> None:
    with ground.fleet.broken(ground.good[7], sshd=["Port 2222"]):
        kind, key = ground.known_key(ground.good[7]).split()
        path = ground.folder / "known"
        path.write_text(f"[{ground.fleet.addresses[ground.good[7]]}]:2222 {kind} {key}\n")
        ssh = ground.ssh(f"Host {ground.good[7]}\n Port 2222\n UserKnownHostsFile {path}\n")
        assert ssh.run(ground.good[7], "echo ${SSH_CONNECTION##* }", b"", 10).out == b"2222\n"


def test_an_option_goes_before_the_configuration(ground: Ground) -> None:
    ssh = ground.ssh(config={"User": "nobody-here", "IdentityFile": "none"}, user="root", identity=(str(ground.key),))
    assert ssh.run(ground.good[0], "id -un", b"", 10).out == b"root\n"


def test_two_users_of_one_host_are_kept_apart(ground: Ground) -> None:
    ssh = ground.ssh()
    assert ssh.run(f"root@{ground.good[0]}", "id -un", b"", 10).out == b"root\n"
    with pytest.raises(TransportError) as error:
        ssh.run(f"nobody-here@{ground.good[0]}", "id -un", b"", 10)
    assert error.value.kind == "auth"


def test_without_an_ssh_program_hosts_are_reached_all_the_same(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = ground.config()
    monkeypatch.setenv("PATH", str(tmp_path))
    ssh = ground.ssh()
    assert config.exists()
    assert ssh.run(ground.good[0], "hostname", b"", 10).out == f"{ground.good[0]}\n".encode()
    assert "ssh is not installed" in ssh.warnings[0]


def test_close_ends_a_connection_in_the_making(ground: Ground) -> None:
    """While packets to the host are dropped, and while its jump host does not answer."""
    drop = ground.faulty["drop"]
    ssh = ground.ssh(f"Host {ground.good[0]}\n ProxyJump {drop}\n", connect_timeout=60.0)
    stops: list[str] = []

    def run(host: str) -> None:
        with pytest.raises(TransportError) as error:
            ssh.run(host, "true", b"", 5)
        stops.append(error.value.kind)

    threads = [threading.Thread(target=run, args=[host]) for host in (drop, ground.good[0])]
    for thread in threads:
        thread.start()
    waiting = "for i in $(seq 100); do [ $(ss -Htn state syn-sent | wc -l) = 2 ] && exit 0; sleep .05; done; exit 1"
    subprocess.run(["sh", "-c", waiting], check=True)
    ssh.close()
    for thread in threads:
        thread.join(2)
    assert stops == ["budget", "budget"]
