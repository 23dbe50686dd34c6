"""`doctor preflight --gang` with real processes on hosts of their own: they meet by name, and end alike."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.connectivity import AHEAD
from tests.hosts import testbed
from tests.hosts.fleet import Fleet
from tests.jobs.site import FAULT, PATH, Site

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(240)]
KEY = {"DOCTOR_GANG_KEY": "0123456789abcdef0123456789abcdef"}
QUICK = ("--net", "off", "--select", f"{FAULT},host-unreachable,clocks-differ,interface-mtu-differs")
Process = subprocess.Popen[str]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    created = Site(make_fleet, 3, name="gang", subnet="10.83.0.0/16")
    yield created
    created.end()


class Gang:
    """The processes of one gang: one on each host."""

    def __init__(self, site: Site, *options: str, env: Mapping[str, str] = KEY, size: int = 0) -> None:
        self.site, self.options, self.env = site, options or QUICK, env
        self.hosts = site.hosts[: size or None]
        self.processes: dict[str, Process] = {}

    @property
    def names_itself(self) -> bool:
        return self.options[0] in ("--gang", "--gang-key")

    def start(self, *hosts: str, env: Mapping[str, str] = {}, more: Sequence[str] = ()) -> Gang:
        for host in hosts or self.hosts:
            nodes = [] if self.names_itself else ["--gang", "auto", ",".join(self.hosts)]
            words = ["doctor", "preflight", *nodes, "--no-history", *self.options, *more]
            values = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **self.env, **env}
            argv = testbed.enter_argv(self.site.fleet._pid(host), words)
            self.processes[host] = subprocess.Popen(
                argv, env=values, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        return self

    def end(self) -> dict[str, Ended]:
        done = {}
        for host, process in self.processes.items():
            out, err = process.communicate(timeout=120)
            assert "Traceback" not in err, err
            done[host] = Ended(process.returncode, out.strip(), err)
        return done

    def kill(self, host: str) -> None:
        """The process in the host, not only the one that entered it."""
        process = self.processes.pop(host)
        for pid in (*_descendants(process.pid), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()

    def wait_for(self, host: str, text: str) -> None:
        """Until a port of the gang is in this state on a host. A leader looks for another one, and meets itself."""
        deadline, own = time.monotonic() + 60, self.site.fleet.addresses[host]
        while not self.site.fleet.enter(host, f"ss -Htni {text}".replace("OWN", own), check=False).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.05)


LISTENS = "state listening '( sport >= 28640 and sport <= 28643 )'"
HAS_MEMBER = (
    "state established '( sport >= 28640 and sport <= 28643 ) and not dst OWN' | grep -E 'bytes_received:[0-9]{3}'"
)
"""It has been admitted: both have shown that they know the key."""


def _descendants(pid: int) -> list[int]:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [other for child in children for other in (*_descendants(child), child)]


def codes(done: Mapping[str, Ended]) -> set[int]:
    return {ended.code for ended in done.values()}


def verdicts(path: Path) -> dict[str, Any]:
    """By check: its status, and the hosts and templates of its findings."""
    report = json.loads(path.read_text())
    return {
        outcome["check"]: (outcome["status"], [(sorted(one["hosts"]), one["template"]) for one in outcome["findings"]])
        for outcome in report["outcomes"]
    }


@pytest.mark.every
def test_a_healthy_gang_ends_with_0_and_one_line(site: Site) -> None:
    done = Gang(site).start().end()
    assert codes(done) == {0}, done
    assert len({ended.out for ended in done.values()}) == 1
    assert done[site.hosts[2]].out.startswith("doctor preflight: OK nodes=3/3 where=gang ")


def test_a_fault_of_one_fails_all_and_names_it(site: Site) -> None:
    with site.closed_tmp(site.hosts[1]):
        done = Gang(site).start().end()
    assert codes(done) == {10}, done
    assert all(FAULT in ended.out and site.hosts[1] in ended.out for ended in done.values())
    assert site.hosts[0] not in done[site.hosts[0]].out.replace(site.hosts[1], "")


def test_the_report_is_the_one_over_ssh(site: Site) -> None:
    over_ssh, by_gang = site.folder / "ssh.json", site.folder / "gang.json"
    nodes = ",".join(site.hosts)
    with site.closed_tmp(site.hosts[2]):
        gang = Gang(site, "--net", "off")
        gang.start(*site.hosts[1:]).start(site.hosts[0], more=["--report", str(by_gang)])
        done = gang.end()
        site.enter(site.hosts[0], f"doctor preflight {nodes} --net off --no-history --report {over_ssh}")
    assert codes(done) == {10}, done
    first, second = verdicts(over_ssh), verdicts(by_gang)
    assert len(first) > 100
    different = {name: (first[name], second.get(name)) for name in first if first[name] != second.get(name)}
    assert not different


def test_one_that_never_comes_is_named_by_its_index(site: Site) -> None:
    done = Gang(site, *QUICK, "--gang-wait", "4s").start(*site.hosts[:2]).end()
    assert codes(done) == {10}, done
    assert f"{site.hosts[2]} (index 2)" in done[site.hosts[0]].err
    assert "host-unreachable" in done[site.hosts[1]].out


def test_its_code_is_as_the_options_have_it(site: Site) -> None:
    done = Gang(site, *QUICK, "--gang-wait", "4s", "--fail-exit", "7").start(*site.hosts[:2]).end()
    assert codes(done) == {7}, done


def test_another_key_is_no_member(site: Site) -> None:
    gang = Gang(site, *QUICK, "--gang-wait", "4s").start(*site.hosts[:2])
    gang.start(site.hosts[2], env={"DOCTOR_GANG_KEY": "a stranger's own key of bytes"})
    done = gang.end()
    assert {host: ended.code for host, ended in done.items()} == dict(zip(site.hosts, (10, 10, 12), strict=True))
    assert "another key" in done[site.hosts[0]].err
    assert "it has another key" in done[site.hosts[2]].err


def test_a_member_that_is_started_again_is_taken_in(site: Site) -> None:
    gang = Gang(site).start(*site.hosts[:2])
    gang.wait_for(site.hosts[0], HAS_MEMBER)
    gang.kill(site.hosts[1])
    done = gang.start(*site.hosts[1:]).end()
    assert codes(done) == {0}, done


def test_a_leader_that_is_started_again_is_taken(site: Site) -> None:
    gang = Gang(site).start(*site.hosts[:2])
    gang.wait_for(site.hosts[0], HAS_MEMBER)
    gang.kill(site.hosts[0])
    done = gang.start(site.hosts[0], site.hosts[2]).end()
    assert codes(done) == {0}, done


def test_without_their_leader_all_end_as_unknown(site: Site) -> None:
    gang = Gang(site, *QUICK, "--gang-wait", "6s").start(*site.hosts[:2])
    gang.wait_for(site.hosts[0], HAS_MEMBER)
    gang.kill(site.hosts[0])
    done = gang.start(site.hosts[2]).end()
    assert codes(done) == {12}, done
    assert all("index" in ended.err and "connection refused" in ended.err for ended in done.values())


def test_a_leader_that_is_ended_by_a_signal_leaves_no_verdict(site: Site) -> None:
    gang = Gang(site).start(*site.hosts[:2])
    gang.wait_for(site.hosts[0], HAS_MEMBER)
    os.kill(_descendants(gang.processes[site.hosts[0]].pid)[0], signal.SIGTERM)
    done = gang.end()
    assert [done[host].code for host in site.hosts[:2]] == [143, 12], done
    assert "was ended by signal 15" in done[site.hosts[1]].err


def test_a_second_process_of_the_pod_that_leads_gets_the_verdict(site: Site) -> None:
    gang, second = Gang(site), Gang(site)
    gang.start(site.hosts[0])
    gang.wait_for(site.hosts[0], LISTENS)
    second.start(site.hosts[0])
    gang.wait_for(site.hosts[0], HAS_MEMBER)
    done, beside = gang.start(*site.hosts[1:]).end(), second.end()
    assert codes(done) == codes(beside) == {0}, (done, beside)
    assert beside[site.hosts[0]].out == done[site.hosts[0]].out


def test_two_pods_with_index_0_are_named_and_the_others_are_not_accused(site: Site) -> None:
    first, other = site.hosts[0], site.hosts[2]
    with site.fleet.broken(other, sh=f"hostname {first}"):
        done = Gang(site, *QUICK, "--gang-wait", "6s").start().end()
    assert [done[host].code for host in site.hosts] == [10, 10, 12], done
    line = f"two pods have index 0 of the gang: this one, {first}, and {first} at {site.fleet.addresses[first]}"
    assert line in done[other].err and site.hosts[1] not in done[other].out, done[other]
    assert f"host-unreachable:{other}" in done[first].out


def test_a_name_that_no_check_has_is_refused_before_the_gang_meets(site: Site) -> None:
    """By a member whose leader never comes."""
    done = Gang(site, "--select", "clocks-difer").start(site.hosts[1]).end()[site.hosts[1]]
    assert done.code == 2 and "did you mean clocks-differ?" in done.err, done


def test_two_gangs_at_once_keep_apart(site: Site) -> None:
    first, second = Gang(site), Gang(site, env={"DOCTOR_GANG_KEY": "another job's key, another job's"}, size=2)
    first.start(), second.start()
    assert codes(first.end()) == codes(second.end()) == {0}


def test_a_closed_port_is_said_on_both_sides(site: Site) -> None:
    host = site.hosts[2]
    rule = "table inet gang { chain out { type filter hook output priority 0; tcp dport 28640-28643 drop; }; }"
    with site.fleet.broken(host, nft=rule):
        done = Gang(site, *QUICK, "--gang-wait", "6s").start().end()
    assert [done[name].code for name in site.hosts] == [10, 10, 12], done
    assert f"{host} (index 2)" in done[site.hosts[0]].err
    assert "no answer" in done[host].err


def test_names_of_an_indexed_job(site: Site) -> None:
    """By document: the environment and /etc/hosts are as the controller and the kubelet would write them."""
    lines = [
        f"{site.fleet.addresses[host]} train-{index}.train.default.svc.cluster.local train-{index} train-{index}.train"
        for index, host in enumerate(site.hosts)
    ]
    text = "\n".join(lines)
    with site.fleet.broken(site.hosts, sh=f"cat >>/etc/hosts <<'E'\n{text}\nE\n"):
        gang = Gang(site, "--gang", "3", *QUICK)
        for index, host in enumerate(site.hosts):
            site.fleet.enter(host, f"hostname train-{index}")
            gang.start(host, env={"JOB_COMPLETION_INDEX": str(index)})
        with site.closed_tmp(site.hosts[2]):
            done = gang.end()
    assert codes(done) == {10}, done
    assert all(" nodes=2/3 bad=train-2 " in ended.out for ended in done.values())


RAY = "r-head-svc.default.svc.cluster.local"
ASCEND = {"MINDX_TASK_ID": "6a8f", "MASTER_ADDR": "10.96.4.7", "MASTER_PORT": "2222", "WORLD_SIZE": "24"}
ASCEND |= {"LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "0,1,2,3,4,5,6,7"}
SERVICE = """\
ip route add 10.96.4.0/24 dev eth0
nft -f - <<'E'
table ip services { chain output { type nat hook output priority -100;
 ip daddr 10.96.4.7 tcp dport 28640-28643 dnat to %s; }; }
E
"""
"""What kube-proxy does for the service of an AscendJob's first pod: to the ports that it has, and to no others."""


@pytest.mark.parametrize(
    ("size", "names", "environ", "leader"),
    [
        ("auto", ("a-master-0", "a-worker-0", "a-worker-1"), ASCEND, ("10.96.4.7", "a-master-0")),
        ("3", ("r-head-x7k2p", "r-gpu-worker-abcde", "r-gpu-worker-fghij"), {"FQ_RAY_IP": RAY}, ("", RAY)),
    ],
    ids=["AscendJob", "RayCluster"],
)
def test_pods_of_which_only_the_first_has_a_name(
    site: Site, size: str, names: tuple[str, ...], environ: dict[str, str], leader: tuple[str, str]
) -> None:
    """By document: `doctor.environment.gang_place` has the sources. No pod is accused of the names that none has."""
    address = site.fleet.addresses[site.hosts[0]]
    sh = f"echo {leader[0] or address} {leader[1]} >>/etc/hosts\n" + (SERVICE % address if leader[0] else "")
    checks = ("--select", f"{FAULT},host-unreachable,host-name-unresolved", "--fail-on", "warning")
    for fault in (None, site.hosts[2]):
        with site.fleet.broken(site.hosts, sh=sh):
            gang = Gang(site, "--gang", size, "--net", "off", *checks)
            with site.closed_tmp(fault) if fault else contextlib.nullcontext():
                for index, (host, name) in enumerate(zip(site.hosts, names, strict=True)):
                    site.fleet.enter(host, f"hostname {name}; echo {site.fleet.addresses[host]} {name} >>/etc/hosts")
                    gang.start(host, env={**environ, "RANK": str(index)} if environ is ASCEND else environ)
                done = gang.end()
        assert codes(done) == ({10} if fault else {0}), done
        expected = f" nodes=2/3 bad={names[2]} why={FAULT}:{names[2]} " if fault else " nodes=3/3 "
        assert all(expected in ended.out for ended in done.values()), done


@pytest.mark.parametrize(
    ("options", "env", "text", "code"),
    [
        (("--gang", "2"), {}, "no key authenticates the pods", 2),
        (("--gang", "2"), {"DOCTOR_GANG_KEY": "short"}, "has 5 bytes", 78),
        (("--gang", "2", "--gang-key", "/nowhere"), {}, "cannot be read", 78),
        (("--gang", "x"), KEY, "expected the number of pods", 2),
        (("--gang", "2", "--scope", "local"), KEY, "expected one of them", 2),
        (("--gang", "2", "--gang-wait", "soon"), KEY, "expected a time", 2),
        (("--gang-key", "none"), KEY, "belong to --gang", 2),
    ],
)
def test_bad_input_is_one_line(
    site: Site, options: tuple[str, ...], env: Mapping[str, str], text: str, code: int
) -> None:
    done = Gang(site, *options, ",".join(site.hosts[:2]), env=env).start(site.hosts[0]).end()[site.hosts[0]]
    assert done.code == code, done
    assert [line for line in done.err.splitlines() if text in line], done


def test_without_a_key_only_the_pods_addresses_are_believed(site: Site) -> None:
    gang = Gang(site, *QUICK, "--gang-wait", "5s", "--gang-key", "none", env={})
    gang.start(*site.hosts[:2])
    # The third claims to be the second, by a list of its own that it also could have put up.
    done = gang.start(site.hosts[2]).end()
    assert codes(done) == {0}, done
    assert "known by their addresses alone" in done[site.hosts[0]].err


def test_without_a_key_pods_that_have_no_names_are_refused(site: Site) -> None:
    gang = Gang(site, "--gang", "2", "--gang-key", "none", "--net", "off", env={"FQ_RAY_IP": RAY})
    done = gang.start(site.hosts[0]).end()[site.hosts[0]]
    assert done.code == 2 and "names of this job's pods prove nothing" in done.err, done


@pytest.mark.parametrize(
    ("check", "sh"),
    [
        ("interface-mtu-differs", "ip link set dev eth0 mtu 1400"),
        ("clocks-differ", AHEAD.replace('$4"', '$4" "$5"')),
        ("firewall-blocks-job", "iptables-nft -A INPUT -p tcp --dport 29500 -j REJECT"),
    ],
)
def test_faults_between_pods_are_found_and_the_right_one_is_named(site: Site, check: str, sh: str) -> None:
    host = site.hosts[1]
    env = {**KEY, "MASTER_ADDR": host, "MASTER_PORT": "29500"}
    options = ("--select", f"{check},host-unreachable", "--fail-on", "warning", "--net", "off")
    with site.fleet.broken(host, sh=sh):
        done = Gang(site, *options, env=env).start().end()
    assert codes(done) == {10}, done
    assert all(f"why={check}:{host} " in ended.out for ended in done.values()), done


def test_a_pod_that_can_carry_out_nothing_says_why(site: Site) -> None:
    host = site.hosts[1]
    path = "/usr/local/sbin/python3"
    broken = f"printf '#!/bin/sh\\necho no library here >&2; exit 1\\n' >{path}; chmod 755 {path}"
    with site.fleet.broken(host, sh=broken):
        done = Gang(site).start().end()
    assert codes(done) == {10}, done
    assert f"host-unreachable:{host} " in done[host].out, done
    assert "no library here" in done[site.hosts[0]].err, done
