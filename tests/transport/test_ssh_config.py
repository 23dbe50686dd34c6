"""What ssh -G prints becomes settings; what the user writes becomes a target, or is refused."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from doctor.engine.errors import InputError
from doctor.transport import TransportError
from doctor.transport.ssh.config import SshHostConfig, Target, host_config, parse_hop, parse_target, parse_values
from doctor.transport.ssh.config_files import config_texts, own_account, patterns, syntax_error

HOME = pwd.getpwuid(os.getuid()).pw_dir
ANSWER = """\
host gpu7
user alice
hostname 10.1.2.7
port 2222
addressfamily inet
identitiesonly yes
pubkeyauthentication true
passwordauthentication no
kbdinteractiveauthentication no
hashknownhosts yes
hostkeyalias GPU-Seven
identityfile ~/.ssh/id_%r
identityfile /keys/%h
certificatefile /keys/%h-cert.pub
globalknownhostsfile /etc/ssh/ssh_known_hosts
userknownhostsfile /home/alice/.ssh/known_hosts /srv/with space/known
connecttimeout 7
proxycommand nc -X connect %h %p %%
identityagent none
"""


def parsed(text: str) -> SshHostConfig:
    return host_config("gpu7", parse_values(text))


def test_the_settings_are_those_that_ssh_would_follow() -> None:
    assert parsed(ANSWER) == SshHostConfig(
        host="gpu7",
        name="10.1.2.7",
        port=2222,
        user="alice",
        identities=(f"{HOME}/.ssh/id_alice", "/keys/10.1.2.7"),
        certificates=("/keys/10.1.2.7-cert.pub",),
        identities_only=True,
        known_hosts=("/home/alice/.ssh/known_hosts", "/srv/with space/known"),
        global_known_hosts=("/etc/ssh/ssh_known_hosts",),
        alias="gpu-seven",
        hash_known_hosts=True,
        proxy="nc -X connect 10.1.2.7 2222 %",
        connect_timeout=7.0,
        family="inet",
        use_password=False,
    )


def test_an_empty_answer_gives_the_host_itself() -> None:
    observed_host_config = parsed("")
    assert (observed_host_config.name, observed_host_config.port, observed_host_config.user) == (
        "gpu7",
        22,
        pwd.getpwuid(os.getuid()).pw_name,
    )
    assert observed_host_config.use_keys
    assert observed_host_config.use_password


@pytest.mark.parametrize(
    ("line", "jumps"),
    [
        ("proxyjump none", ()),
        ("proxyjump login", ("login",)),
        ("proxyjump bob@a:2222,b", ("bob@a:2222", "b")),
    ],
)
def test_jump_hosts_are_in_order(line: str, jumps: tuple[str, ...]) -> None:
    assert parsed(line).jumps == jumps


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("identityagent none", ""),
        ("identityagent /run/agent", "/run/agent"),
        ("identityagent ~/agent", f"{HOME}/agent"),
        ("identityagent $OTHER", "/run/other"),
        ("identityagent SSH_AUTH_SOCK", "/run/env"),
        ("", "/run/env"),
    ],
)
def test_the_agent_is_the_one_that_is_meant(monkeypatch: pytest.MonkeyPatch, line: str, expected: str) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/env")
    monkeypatch.setenv("OTHER", "/run/other")
    assert parsed(line).agent == expected


@pytest.mark.parametrize("line", ["port ssh", "connecttimeout soon"])
def test_nonsense_is_an_error_of_the_host(line: str) -> None:
    with pytest.raises(TransportError) as stop:
        parsed(line)
    assert stop.value.kind == "error"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("gpu7", Target("gpu7")),
        ("alice@gpu7", Target("gpu7", "alice")),
        ("alice@corp@gpu7", Target("gpu7", "alice@corp")),
        ("10.0.0.1", Target("10.0.0.1")),
        ("fe80::1%eth0", Target("fe80::1%eth0")),
        ("[fe80::1]", Target("fe80::1")),
        ("ssh://gpu7", Target("gpu7")),
        ("ssh://alice@gpu7:2222", Target("gpu7", "alice", 2222)),
        ("ssh://[::1]:2222", Target("::1", "", 2222)),
    ],
)
def test_targets(message: str, expected: Target) -> None:
    assert parse_target(message) == expected


@pytest.mark.parametrize(
    "message",
    ["", "-oProxyCommand=reboot", "a b", "a;b", "$(reboot)", "`reboot`", "a\nb", "-l@a", "x y@a", "'@a", "a@-b"],
)
def test_what_cannot_be_a_host_never_gets_to_a_command_line(message: str) -> None:
    with pytest.raises(TransportError) as stop:
        parse_target(message)
    assert stop.value.kind == "name"


def test_hops_may_have_user_and_port() -> None:
    assert [parse_hop(name) for name in ("a", "u@a", "a:2222", "u@[::1]:2222")] == [
        Target("a"),
        Target("a", "u"),
        Target("a", "", 2222),
        Target("::1", "u", 2222),
    ]


class TestPatterns:
    """Hosts that fit the same patterns need one answer of ssh, unless something else tells them apart."""

    def test_of_host_lines(self) -> None:
        text = 'Host a* !ab\n  User x\nhost="c d" e\n# Host f\nMatch all\n'
        assert patterns([text, "Host g"]) == {"a*", "ab", "c", "d", "e", "g"}

    @pytest.mark.parametrize("line", ["Match exec true", "match host a", "CanonicalizeHostname yes", "Match=final all"])
    def test_there_are_none_where_more_than_the_name_counts(self, line: str) -> None:
        assert patterns([line]) is None

    def test_included_files_are_followed(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("Include conf.d/*.conf\nHost a\n")
        (tmp_path / "conf.d").mkdir()
        (tmp_path / "conf.d" / "b.conf").write_text("Host b\nInclude ~/c\n")
        (tmp_path / "c").write_text("Host c\n")
        texts = config_texts([tmp_path / "config", tmp_path / "none"], tmp_path, tmp_path)
        assert texts is not None
        assert patterns(texts) == {"a", "b", "c"}

    def test_an_include_that_cannot_be_followed_counts_as_unknown(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("Include %h.conf\n")
        assert config_texts([tmp_path / "config"], tmp_path, tmp_path) is None
        (tmp_path / "config").write_text("Include config\n")
        assert config_texts([tmp_path / "config"], tmp_path, tmp_path) is None


def test_a_user_without_a_name_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a number; ssh itself says: No user exists for uid."""

    def absent(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("doctor.transport.ssh.config_files.pwd.getpwuid", absent)
    with pytest.raises(InputError, match="has no entry in /etc/passwd, and SSH needs one"):
        own_account()
    assert syntax_error("/etc/ssh/ssh_config") == ""
