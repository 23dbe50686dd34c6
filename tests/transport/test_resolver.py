"""ssh itself is asked what its configuration says, once for hosts that cannot differ."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doctor.transport import TransportError
from doctor.transport.local import Children
from doctor.transport.options import SshOptions
from doctor.transport.ssh.config_resolver import Resolver

needs_ssh = pytest.mark.skipif(not shutil.which("ssh"), reason="ssh is not installed on this machine")
Make = Callable[..., Resolver]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that gets one line for each call of ssh, which is put first in the PATH."""
    calls, folder = tmp_path / "calls", tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(f'#!/bin/sh\necho "$@" >>{calls}\nexec {shutil.which("ssh")} "$@"\n')
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    calls.touch()
    return calls


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    children = Children()

    def resolver(config: str, warnings: list[str] | None = None, **options: object) -> Resolver:
        (tmp_path / "config").write_text(config)
        ssh_options = SshOptions(config=str(tmp_path / "config"), **options)  # type: ignore[arg-type]
        return Resolver(ssh_options, children, [] if warnings is None else warnings)

    yield resolver
    children.close()


@needs_ssh
class TestOnceForAll:
    def test_hosts_of_one_pattern_are_asked_for_twice(self, make: Make, calls: Path) -> None:
        resolver = make("Host node*\n User alice\n Port 2222\n ProxyCommand nc %h %p\nHost *\n User bob\n")
        with ThreadPoolExecutor(16) as pool:
            host_configs = list(pool.map(resolver.resolve, [f"node{n}" for n in range(64)]))
        assert [host_config.name for host_config in host_configs] == [f"node{n}" for n in range(64)]
        assert {(host_config.user, host_config.port) for host_config in host_configs} == {("alice", 2222)}
        assert host_configs[9].proxy == "nc node9 2222"
        assert len(calls.read_text().splitlines()) == 2

    def test_a_host_with_lines_of_its_own_is_asked_for_itself(self, make: Make, calls: Path) -> None:
        resolver = make("Host node2\n HostName 10.0.0.2\nHost node3\n Port 3\nHost *\n User bob\n")
        host_configs = {name: resolver.resolve(name) for name in ("node1", "node2", "node3", "node4", "node5")}
        assert [(host_config.name, host_config.port) for host_config in host_configs.values()] == [
            ("node1", 22),
            ("10.0.0.2", 22),
            ("node3", 3),
            ("node4", 22),
            ("node5", 22),
        ]
        assert len(calls.read_text().splitlines()) == 4

    @pytest.mark.parametrize(
        "config",
        [
            "HostName %h.example.com\n",
            "UserKnownHostsFile /known/%h\n",
            "Match host node1\n Port 7\n",
            'Match exec "test %h = node2"\n Port 7\n',
        ],
    )
    def test_where_the_name_makes_a_difference_each_is_asked_for(self, make: Make, calls: Path, config: str) -> None:
        resolver = make(config)
        host_configs = [resolver.resolve(f"node{n}") for n in range(5)]
        assert len(calls.read_text().splitlines()) == 5
        assert len({(host_config.name, host_config.known_hosts, host_config.port) for host_config in host_configs}) > 1

    def test_users_are_kept_apart(self, make: Make) -> None:
        resolver = make("Match user zoe\n Port 7\nHost *\n User bob\n")
        assert [(host_config.user, host_config.port) for host_config in map(resolver.resolve, ("a", "zoe@b", "c"))] == [
            ("bob", 22),
            ("zoe", 7),
            ("bob", 22),
        ]


@needs_ssh
class TestOptions:
    def test_they_go_before_the_configuration(self, make: Make) -> None:
        resolver = make("User bob\nPort 2\nIdentityFile /a\n", user="eve", port=3, identity=("/b",))
        host_config = resolver.resolve("node1")
        assert (host_config.user, host_config.port, host_config.identities[0]) == ("eve", 3, "/b")

    def test_what_stands_with_the_host_goes_before_them(self, make: Make) -> None:
        host_config = make("User bob\n", user="eve", port=3).resolve("ssh://ann@node1:4")
        assert (host_config.user, host_config.port) == ("ann", 4)

    def test_they_are_not_for_jump_hosts(self, make: Make) -> None:
        host_config = make("User bob\n", user="eve", port=3, identity=("/b",)).resolve_hop("gate:77")
        assert (host_config.user, host_config.port) == ("bob", 77)
        assert "/b" not in host_config.identities

    def test_settings_are_like_ssh_o(self, make: Make) -> None:
        assert make("ConnectTimeout 3\n", settings=("ConnectTimeout=9", "HostKeyAlias=x")).resolve("a").alias == "x"


@needs_ssh
@needs_ssh
def test_an_address_stands_for_a_name_that_does_not_resolve_unless_the_configuration_has_one(make: Make) -> None:
    """The rest of the host's settings stays."""
    addresses = {"r1c1": "10.9.8.7", "r1c2": "10.9.8.8", "r1c3": "10.9.8.9"}
    config = "Host r1c2\n HostName n2.example\nHost r1c3\n ProxyJump gate\nHost r*\n User alice\n Port 2222\n"
    resolver = make(config, addresses=addresses)
    resolved = [resolver.resolve(host) for host in ("r1c1", "r1c2", "r1c3", "r1c4")]
    assert [settings.name for settings in resolved] == ["10.9.8.7", "n2.example", "r1c3", "r1c4"]
    assert (resolved[0].host, resolved[0].user, resolved[0].port) == ("r1c1", "alice", 2222)


def test_a_configuration_that_ssh_does_not_take_is_told_in_its_words(make: Make) -> None:
    with pytest.raises(TransportError) as stop:
        make("Host *\n Nonsense yes\n").resolve("node1")
    assert stop.value.kind == "error"
    assert "Bad configuration option: nonsense" in stop.value.text
    assert stop.value.hint == "ssh -G node1"


class TestWithoutSsh:
    @pytest.fixture(autouse=True)
    def no_ssh(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))

    def test_paramiko_reads_the_configuration_and_we_say_so(self, make: Make) -> None:
        warnings: list[str] = []
        config = "Host node*\n User alice\n HostName %h.lan\n Port 2222\n ProxyJump gate\n ConnectTimeout 4\n"
        host_config = make(config, warnings).resolve("node1")
        assert (
            host_config.user,
            host_config.name,
            host_config.port,
            host_config.jumps,
            host_config.connect_timeout,
        ) == (
            "alice",
            "node1.lan",
            2222,
            ("gate",),
            4.0,
        )
        assert host_config.known_hosts[0].endswith("/.ssh/known_hosts")
        assert "ssh is not installed" in warnings[0]

    def test_match_exec_has_what_it_needs(self, make: Make) -> None:
        with pytest.raises(TransportError) as stop:  # no shell is in the PATH here
            make('Match exec "true"\n Port 44\n').resolve("node7")
        assert "'bash'" in stop.value.text

    def test_options_go_before_it(self, make: Make) -> None:
        resolver = make("User bob\n", user="eve", identity=("/a", "/b"), settings=("Port=5",))
        host_config = resolver.resolve("node1")
        assert (host_config.user, host_config.port, host_config.identities) == ("eve", 5, ("/a", "/b"))
        assert resolver.resolve_hop("gate").user == "bob"


def test_the_import_leaves_out_what_is_hardly_used() -> None:
    """What paramiko says of itself to the servers stays, and what comes later gets the real modules."""
    program = """
import sys, doctor.transport.ssh.ssh_transport, paramiko
print(sorted({"invoke", "unittest", "yaml", "email", "importlib.metadata"} & set(sys.modules)))
import importlib.metadata
print(paramiko.__version__ == importlib.metadata.version("paramiko"), importlib.metadata.version("typer") != "")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nTrue True\n"
