"""What ssh writes into its log becomes the same kinds of trouble; what a host prints cannot pretend to be ssh."""

from __future__ import annotations

import pytest

from doctor.transport.openssh.log import error_from_log, has_exit_status, late_error
from doctor.transport.ssh.config import SshHostConfig

HOST = SshHostConfig(
    host="gpu7", name="10.0.0.7", user="alice", known_hosts=("/home/alice/known",), connect_timeout=10.0
)
BEHIND = SshHostConfig(host="gpu7", name="10.0.0.7", user="alice", jumps=("login", "rack7"))
CHANGED = """\
debug1: Server host key: ssh-ed25519 SHA256:KU3bTg8HYjrsBLxIBi8mBWHNiQcLMmjStQ6aXlCLPjA
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
The fingerprint for the ED25519 key sent by the remote host is
SHA256:KU3bTg8HYjrsBLxIBi8mBWHNiQcLMmjStQ6aXlCLPjA.
Offending ED25519 key in /home/alice/known:12
Host key for 10.0.0.7 has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("log", "kind", "text"),
    [
        ("ssh: Could not resolve hostname 10.0.0.7: Name or service not known", "name", "the name 10.0.0.7 does"),
        ("ssh: connect to host 10.0.0.7 port 22: Connection refused", "refused", "port 22 of 10.0.0.7 refuses"),
        ("ssh: connect to host 10.0.0.7 port 22: No route to host", "no-route", "no route to port 22"),
        ("ssh: connect to host 10.0.0.7 port 22: Connection timed out", "dropped", "no answer from port 22"),
        ("Connection timed out during banner exchange", "silent", "port 22 of 10.0.0.7 accepts"),
        ("kex_exchange_identification: Connection closed by remote host", "lost", "the connection was cut: kex_"),
        (("kex_exchange_identification: banner line contains invalid characters\nbanner exchange: Connection to "
         "10.0.0.7 port 22: invalid format"), "not-ssh",
         "port 22 of 10.0.0.7 has an incompatible SSH server: banner exchange"),
        ("Unable to negotiate with 10.0.0.7 port 22: no matching host key type found. Their offer: ssh-rsa",
         "not-ssh", "port 22 of 10.0.0.7 has an incompatible SSH server: Unable to negotiate"),
        ("alice@10.0.0.7: Permission denied (publickey,password).", "auth",
         "the login as alice was refused: alice@10.0.0.7: Permission denied (publickey,password)."),
        ("Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures\nDisconnected from 10.0.0.7",
         "auth", "the login as alice was refused"),
        (("No ED25519 host key is known for 10.0.0.7 and you have requested strict checking.\n"
         "Host key verification failed."), "key-unknown", "its host key is unknown"),
        (CHANGED, "key-changed", "its host key has changed: it shows SHA256:KU3bTg8HYjrsBLxIBi8mBWHNiQcLMmjStQ6aXl"),
        ("@ WARNING: REVOKED HOST KEY DETECTED! @\nHost key verification failed.", "key-revoked", "its host key is"),
        ("command-line: line 0: Bad configuration option: x", "error", "ssh failed: command-line: line 0: Bad"),
        ("", "error", "ssh failed: no reason given"),
        ("debug1: Sending command: x\nTransferred: sent 1, received 2 bytes\ndebug1: Exit status -1", "lost",
         "the connection was cut before the command ended"),
        (("debug1: Sending command: x\ndebug1: client_input_channel_req: channel 0 rtype exit-signal reply 0\n"
         "debug1: Exit status -1"), "error", "the command was killed by a signal"),
    ],
)  # fmt: skip
def test_each_sign_has_its_kind(log: str, kind: str, text: str) -> None:
    error = error_from_log(log, b"", HOST)
    assert (error.kind, error.text[: len(text)]) == (kind, text)


def test_hints_are_commands() -> None:
    unknown = "No ED25519 host key is known for [10.0.0.7]:22 and you have requested strict checking."
    assert error_from_log(CHANGED, b"", HOST).hint == "ssh-keygen -R 10.0.0.7 -f /home/alice/known"
    assert error_from_log(unknown, b"", HOST).hint == "ssh-keyscan -p 22 -t ed25519 10.0.0.7 >> /home/alice/known"


def test_what_the_host_printed_is_no_sign() -> None:
    assert error_from_log("debug1: Connection established.", b"Connection refused\n", HOST).kind == "error"


def test_debug_lines_are_no_signs() -> None:
    assert error_from_log("debug1: connect to address 10.0.0.7 port 22: Connection refused", b"", HOST).kind == "error"


def test_a_jump_host_complains_on_stderr() -> None:
    log = "kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535"
    output = b"bob@login: Permission denied (publickey).\r\n"
    error = error_from_log(log, output, BEHIND)
    assert (error.kind, error.text) == (
        "jump",
        "its jump host rack7 did not connect to it: bob@login: Permission denied (publickey).",
    )


def test_behind_a_jump_host_the_hosts_own_troubles_are_its_own() -> None:
    log = "debug1: Remote protocol version 2.0\nalice@10.0.0.7: Permission denied (publickey)."
    assert error_from_log(log, b"", BEHIND).kind == "auth"


@pytest.mark.parametrize(
    ("log", "is_reported"),
    [
        ("debug1: Exit status 255", True),
        ("debug1: Exit status 0", True),
        ("debug1: Exit status -1", False),
        ("", False),
        ("x debug1: Exit status 3", False),
    ],
)
def test_an_exit_status_counts_when_the_host_has_told_it(log: str, is_reported: bool) -> None:
    assert has_exit_status(log) is is_reported


@pytest.mark.parametrize(
    ("log", "kind", "message"),
    [
        ("", "dropped", "no answer from port 22 of 10.0.0.7 within 10 s"),
        ("debug1: Connection established.", "silent", "sent no SSH banner within 10 s"),
        ("debug1: Remote protocol version 2.0", "silent", "the login did not finish within 10 s"),
        ("debug1: Sending command: x", "timeout", "the command did not end within 7 s"),
    ],
)
def test_a_late_ssh_is_told_by_how_far_it_had_come(log: str, kind: str, message: str) -> None:
    error = late_error(log, HOST, 7.0)
    assert error.kind == kind
    assert message in error.text
