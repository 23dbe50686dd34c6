"""Hosts behind gateways: what is reached, by which gateway, and what of a dead or a lying one.

ssh is a script of the test, which runs each command on this machine.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doctor.transport import TransportError
from doctor.transport.launcher.gateway_routes import Router, TopologyFileError, topology_path
from doctor.transport.launcher.gateway_tree import GatewayTree
from doctor.transport.launcher.launcher_transport import LauncherTransport
from doctor.transport.launcher.relay.relay_child import STRAY_LINES, Child
from doctor.transport.options import SshOptions

SSH = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done
echo "$VIA>$2" >>"$LOG"
case " $DEAD " in *" $2 "*) echo "ssh: connect to host $2 port 22: Connection refused" >&2; exit 255 ;; esac
case " $CUT " in *" $2 "*) exit 255 ;; esac
case " $HUNG " in *" $2 "*) exec sleep 3700 ;; esac
case " $UNKNOWN " in *" $VIA>$2 "*) echo "Host key verification failed." >&2; exit 255 ;; esac
case " $NOISY " in *" $2 "*) echo "o 0 (forged)"; echo "Welcome to $2" ;; esac
VIA=$2 exec sh -c "$3"
"""
LEVELS = "[routes]\nadmin: g[1-2]\ng[1-2]: r[1-2]\nr[1-2]: n[1-6]\n"


class Site:
    """A tree of hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.opened = folder, list[LauncherTransport]()
        self.log = folder / "log"
        self.topology = folder / "topology.conf"
        self.topology.write_text(LEVELS)
        (folder / "ssh").write_text(SSH)
        (folder / "ssh").chmod(stat.S_IRWXU)

    def open(self, hosts: Sequence[str], connect_timeout: float = 20, **environ: str) -> LauncherTransport:
        environ = {"PATH": f"{self.folder}:{os.environ['PATH']}", "LOG": str(self.log), "HOME": "/", **environ}
        tree = GatewayTree(SshOptions(gateways=str(self.topology), connect_timeout=connect_timeout), hosts, environ)
        self.opened.append(LauncherTransport(tree, hosts, None, 1 << 20))
        return self.opened[-1]

    def calls(self) -> list[str]:
        """``from>to`` of each ssh, sorted; nothing before ``>`` for this machine."""
        return sorted(self.log.read_text().split())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    for transport in site.opened:
        transport.close()


def outcomes(transport: LauncherTransport, hosts: Sequence[str], command: str = 'echo "$VIA"') -> dict[str, str]:
    """What a command printed on each host, or why it did not."""

    def run(host: str) -> str:
        try:
            return transport.run(host, command, b"", 20).out.decode().strip()
        except TransportError as stop:
            return f"{stop.kind}: {stop.text}"

    with ThreadPoolExecutor(len(hosts)) as pool:
        return dict(zip(hosts, pool.map(run, hosts), strict=True))


HOSTS = ("g1", "r2", "n1", "n2", "n3", "n4", "n5", "n6", "else")


def test_each_host_answers_for_itself_and_each_gateway_is_entered_once(site: Site) -> None:
    """Also those that are gateways themselves, and one that the file does not name: it is reached directly."""
    assert outcomes(site.open(HOSTS), HOSTS) == {host: host for host in HOSTS}
    calls = site.calls()
    assert len(calls) == len(set(calls)) == 2 + 2 + 6 + 1
    assert calls[:3] == [">else", ">g1", ">g2"]


def test_the_stdin_of_each_host_is_its_own(site: Site) -> None:
    transport = site.open(HOSTS)

    def echo(host: str) -> bytes:
        return transport.run(host, "head -c 90001 | tail -c 9", (host * 90000)[:89995].encode() + b"|end!!", 20).out

    with ThreadPoolExecutor(9) as pool:
        assert all(answer.endswith(b"|end!!") for answer in pool.map(echo, HOSTS))


def test_another_gateway_stands_in_for_a_dead_one(site: Site) -> None:
    transport = site.open(HOSTS[1:], DEAD="g1 r1")
    assert outcomes(transport, HOSTS[1:]) == {host: host for host in HOSTS[1:]}
    assert [note for note in transport.warnings if "g1" in note] == [
        "the gateway g1 was not used: ssh: connect to host g1 port 22: Connection refused"
    ]
    assert any("r1" in note for note in transport.warnings)


def test_a_gateway_that_hangs_is_passed_by(site: Site) -> None:
    transport, began = site.open(("n1", "n2"), 3, HUNG="g1"), time.monotonic()
    assert outcomes(transport, ("n1", "n2")) == {"n1": "n1", "n2": "n2"}
    assert time.monotonic() - began > 8
    assert transport.warnings == ["the gateway g1 was not used: no answer from it within 9 s"]


def test_without_a_gateway_the_hosts_below_are_not_reached_and_it_is_named(site: Site) -> None:
    hosts = ("n1", "n2", "else")
    answers = outcomes(site.open(hosts, DEAD="r1 r2"), hosts)
    assert answers["else"] == "else"
    for host in ("n1", "n2"):
        assert answers[host].startswith("jump: not reached: the gateway r")
        assert "Connection refused" in answers[host]


def test_a_dead_host_leaves_the_others_their_answers(site: Site) -> None:
    answers = outcomes(site.open(HOSTS, DEAD="n3"), HOSTS)
    error = answers.pop("n3")
    assert error.startswith("refused: ssh: connect to host n3 port 22: Connection refused, through the gateway r")
    assert answers == {host: host for host in HOSTS if host != "n3"}


def test_a_connection_that_is_cut_has_words_of_its_own_where_ssh_has_none(site: Site) -> None:
    """ssh says at LogLevel=INFO only that a connection was closed, reset or timed out."""
    site.topology.write_text("[routes]\nadmin: g1\ng1: n[1-3]\n")
    answers = outcomes(site.open(("n1", "n2", "n3"), CUT="n2", DEAD="n3"), ("n1", "n2", "n3"))
    assert answers["n1"] == "n1"
    assert answers["n2"].endswith(": its connection was closed, or timed out, through the gateway g1")
    assert answers["n3"].endswith(": ssh: connect to host n3 port 22: Connection refused, through the gateway g1")


def test_a_host_whose_key_its_gateway_does_not_know_is_not_entered(site: Site) -> None:
    site.topology.write_text("[routes]\nadmin: g1\ng1: n[1-2]\n")
    answers = outcomes(site.open(("n1", "n2"), UNKNOWN="g1>n2"), ("n1", "n2"))
    assert answers == {
        "n1": "n1",
        "n2": "key-unknown: Host key verification failed., through the gateway g1",
    }


def test_a_host_cannot_speak_for_another(site: Site) -> None:
    """Lines in the form of a relay, printed by a host's login shell, are noise of that host."""
    hosts = ("n1", "n2", "n3")
    assert outcomes(site.open(hosts, NOISY="n2 n3"), hosts) == {host: host for host in hosts}


def test_many_hosts_of_one_gateway(site: Site) -> None:
    site.topology.write_text("[routes]\nadmin: g1\ng1: n[1-90]\n")
    hosts = [f"n{number}" for number in range(1, 91)]
    assert outcomes(site.open(hosts), hosts) == {host: host for host in hosts}


def test_nothing_runs_on_when_the_transport_is_closed(site: Site, tmp_path: Path) -> None:
    transport = site.open(("n1", "n2"))
    outcomes(transport, ("n1", "n2"))
    session = transport.open_session(
        "n1", f"trap 'echo gone >{tmp_path}/gone; exit' TERM; echo up; while :; do sleep .1; done"
    )
    assert next(iter(session)) == b"up"
    began = time.monotonic()
    transport.close()
    assert time.monotonic() - began < 6
    deadline = time.monotonic() + 20
    while not (tmp_path / "gone").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (tmp_path / "gone").read_text() == "gone\n"
    session.close()


# ---- what a gateway may say


def branch() -> Child:
    """What a relay knows of a gateway with two hosts."""
    below = [{"host": f"n{task}", "login": [], "task": task} for task in (3, 4)]
    return Child({"host": "g1", "login": [], "below": below}, {"ssh": [], "carrier": "", "relay": ""})


@pytest.mark.parametrize(
    "line",
    [b"o 3 (abc)", b"e 4 text", b'u "g1"'],
)
def test_a_gateway_speaks_for_what_is_below_it(line: bytes) -> None:
    assert branch().checked([line]) == [line + b"\n"]


@pytest.mark.parametrize(
    "line",
    [
        *(b"o 5 (abc)", b"o -1 x", b"e x", b'u "g2"', b"u", b"x", b"x []", b'x {"tasks": [5]}', b"", b"o", b"\xff 3"),
        *(b'x {"host": "g1", "code": 1, "text": "", "tasks": 3}', b'u {"a": [1]}', b"x " + b"[" * 4000),
        b'x {"host": "g1", "code": 1, "text": "", "tasks": [{}]}',
        b'x {"host": "g1", "code": Infinity, "text": "", "tasks": [3]}',
        b'x {"host": "g0", "code": 1, "text": "the gateway above", "tasks": [3]}',
        b'x {"host": ["g1"], "code": 1, "text": "", "tasks": [3]}',
    ],
)
def test_what_it_says_of_others_is_dropped(line: bytes) -> None:
    child = branch()
    assert (child.checked([line]), child.stray) == ([], 1)


def test_the_end_of_a_branch_names_no_hosts_but_its_own() -> None:
    text = {"host": "n3", "code": "255", "text": "y" * 9999, "tasks": [1, 3, 5]}
    [line] = branch().checked([b"x " + json.dumps(text).encode()])
    end = json.loads(line[2:])
    assert (end["tasks"], end["code"], end["host"], len(end["text"])) == ([3], 255, "n3", 2000)


def test_a_gateway_that_floods_is_ended() -> None:
    child = branch()
    child.checked([b"noise"] * (STRAY_LINES + 1))
    assert child.error_text == b"it sent too much that was not asked of it"


# ---- topology.conf


def ways(path: Path, hosts: Sequence[str], dead: Sequence[str] = (), name: str = "admin") -> list[str]:
    """The gateways to each host."""
    router = Router(str(path), hosts, name)
    router.dead.update(dict.fromkeys(dead, "dead"))
    load: dict[str, int] = {}
    chosen: dict[str, str] = {}
    gateways = [router.way(host, load, chosen) for host in hosts]
    return ["dead" if way is None else ">".join(way) for way in gateways]


@pytest.mark.parametrize(
    ("text", "dead", "expected"),
    [
        (LEVELS, [], ["g1>r1", "g2>r2", "g1>r1", "", ""]),
        (LEVELS, ["r1"], ["g1>r2", "g1>r2", "g1>r2", "", ""]),
        (LEVELS, ["g1"], ["g2>r1", "g2>r2", "g2>r1", "", ""]),
        (LEVELS, ["g1", "g2"], ["dead", "dead", "dead", "", ""]),
        ("[routes]\nadmin: g1\nother: g2\ng1: n[1-2]\ng2: n3\n", [], ["g1", "g1", "", "", ""]),
        ("[routes]\nadmin.site: n[1-3]\n", [], ["", "", "", "", ""]),
    ],
)
def test_hosts_are_divided_among_gateways(tmp_path: Path, text: str, dead: list[str], expected: list[str]) -> None:
    (tmp_path / "t").write_text(text)
    name = "admin.site" if "admin.site" in text else "admin"
    assert ways(tmp_path / "t", ["n1", "n2", "n3", "g1", "else"], dead, name) == expected


@pytest.mark.parametrize(("name", "expected"), [("admin.example.org", "g1>r1"), ("laptop", "g1>r1"), ("g2", "r1")])
def test_the_name_of_this_machine(tmp_path: Path, name: str, expected: str) -> None:
    """A fully qualified one, one that the file does not have, one in the middle."""
    (tmp_path / "t").write_text(LEVELS)
    assert ways(tmp_path / "t", ["n1"], name=name) == [expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Invalid configuration file"),
        ("[routes]\n", "no route found"),
        ("[routes]\nadmin: g1\nother: g2\n", "names no machine laptop, and 2 stand above"),
        ("[routes]\na: b\nb: a\n", "Loop detected"),
        ("[routes]\na: n[1-\n", "missing bracket"),
        ("[routes]\na b c\n", "Invalid configuration file"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(TopologyFileError, match=message):
        Router(str(tmp_path / "t"), ["n1"], "laptop")


def test_a_file_that_is_absent_or_no_text(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xff\xfe\x00[routes]")
    for path in (tmp_path / "t", tmp_path / "absent"):
        with pytest.raises(TopologyFileError):
            Router(str(path), ["n1"], "laptop")


@pytest.mark.parametrize("variable", ["CLUSTERSHELL_CFGDIR", "XDG_CONFIG_HOME", "HOME"])
def test_the_file_of_clush(tmp_path: Path, variable: str) -> None:
    folder = {"CLUSTERSHELL_CFGDIR": "", "XDG_CONFIG_HOME": "clustershell", "HOME": ".config/clustershell"}[variable]
    path = tmp_path / folder / "topology.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LEVELS)
    assert topology_path({variable: str(tmp_path)}) == str(path)


def test_without_any_file(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doctor.transport.launcher.gateway_tree.topology_path", lambda environ: "")
    transport = LauncherTransport(GatewayTree(SshOptions(), ("n1",), {}), ("n1",))
    with pytest.raises(TransportError, match=r"there is no topology\.conf of ClusterShell"):
        transport.run("n1", "true", b"", 5)
    transport.close()
