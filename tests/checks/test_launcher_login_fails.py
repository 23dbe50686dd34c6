from typing import Any

import pytest

from doctor.engine.fact import PerHost
from doctor.facts.launcher_logins import LauncherLogins, LoginAttempt, children, login_problem
from doctor.facts.visit import Reachability
from tests.checks.run_check import messages, run_check, skipped

OTHERS = LauncherLogins(program="mpirun", results=())


def attempt(target: str = "b", code: int | None = 255, ran: bool = False, text: str = "") -> LoginAttempt:
    return LoginAttempt(target, code, ran, text, 0.1)


def outcome(*attempts: LoginAttempt, **more: Any) -> Any:
    logins = LauncherLogins(program="mpirun", results=attempts, **more)
    return run_check("launcher-login-fails", {"a": [logins], "b": [OTHERS], "c": [OTHERS], "d": [OTHERS]})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Host key verification failed.\r\n", "its host key is not in known_hosts"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "is not the one in known_hosts",
        ),
        ("root@b: Permission denied (publickey,password).", "no key is accepted; a password is asked"),
        ("root@b: Permission denied (publickey).", "no key is accepted"),
        ("ssh: Could not resolve hostname b: Name or service not known", "its name does not resolve there"),
        ("ssh: connect to host b port 22: Connection refused", "its SSH port refuses connections"),
        ("ssh: connect to host b port 22: No route to host", "there is no route to it"),
        ("ssh: connect to host b port 22: Connection timed out", "no answer in time"),
        ("kex_exchange_identification: read: Connection reset by peer", "the connection was cut"),
        ("/root/.ssh/config: terminating, 1 bad configuration options", "its SSH configuration is refused"),
        ("something new", "ssh failed"),
    ],
)
def test_what_ssh_says_becomes_a_problem(text: str, problem: str) -> None:
    ((_, message),) = messages(outcome(attempt(text=text), attempt("c", 0, ran=True)))
    assert message.startswith("mpirun on a cannot log in to b over SSH: ")
    assert message.endswith(problem)


def test_the_host_to_blame_is_where_it_is_mended() -> None:
    unknown, denied = "Host key verification failed.", "Permission denied (publickey)."
    assert messages(outcome(attempt(text=unknown), attempt("c", 0, ran=True)))[0][0] == "a"
    assert messages(outcome(attempt(text=denied), attempt("c", 0, ran=True)))[0][0] == "b"
    assert messages(outcome(attempt(text=denied), attempt("c", text=denied)))[0][0] == "a"


def test_a_shell_that_prints_is_well_and_one_that_runs_nothing_is_not() -> None:
    assert messages(outcome(attempt(code=0, ran=True, text="welcome\nPermission denied (publickey)\n"))) == []
    assert login_problem(attempt(code=3)) == "its shell runs no command"
    assert login_problem(attempt(code=0)) == "its shell runs no command"


def test_what_had_not_ended_is_unknown_and_accuses_nobody() -> None:
    assert outcome(attempt(code=None)).unknown
    assert outcome(attempt(code=0, ran=True), skipped=3).unknown
    assert not messages(outcome(attempt(code=None), attempt("c", 0, ran=True)))


def test_the_way_back_counts_where_the_way_there_is_well() -> None:
    """Which host the launch starts on is not known where doctor runs on none of them."""

    def both(there: LoginAttempt, back: LoginAttempt) -> Any:
        logins = LauncherLogins(program="mpirun", results=(there,))
        other = LauncherLogins(program="mpirun", results=(back,), is_back=True)
        return run_check("launcher-login-fails", {"a": [logins], "b": [other]})

    denied, well = "Permission denied (publickey).", attempt(code=0, ran=True)
    (warning,) = both(well, attempt("a", text=denied)).findings
    assert (warning.is_warning, warning.values["source"], warning.hosts) == (True, "b", ("a",))
    (error,) = both(attempt(text=denied), attempt("a", text=denied)).findings
    assert (error.is_warning, error.values["source"]) == (False, "a")
    late = both(well, attempt("a", code=None))
    assert not late.findings and not late.unknown


@pytest.mark.parametrize(("local", "back"), [("", ["b", "c"]), ("a", []), ("c", [])])
def test_who_logs_in_to_the_first_host(local: str, back: list[str]) -> None:
    visits = PerHost({host: Reachability("", "", "", local=host == local) for host in "abc"})
    tasks: dict[str, Any] = LauncherLogins.plan({Reachability: visits})
    assert [host for host, task in tasks.items() if task["back"]] == back
    assert all(task["back"] in ([], ["a"]) for task in tasks.values())
    many = PerHost({f"n{number:03}": Reachability("", "", "") for number in range(300)})
    assert sum(bool(task["back"]) for task in LauncherLogins.plan({Reachability: many}).values()) == 8


def test_a_launch_without_such_a_launcher_is_not_judged() -> None:
    none = LauncherLogins(program="", results=())
    reason = "the launch line has no launcher that logs in over SSH"
    assert skipped(run_check("launcher-login-fails", {"a": [none], "b": [none]})) == {reason}


def test_banners_and_escapes_of_a_stranger_make_no_other_verdict() -> None:
    text = "\x1b[31mPermission denied\x07 " * 100 + "x" * 5000
    assert messages(outcome(attempt(code=0, ran=True, text=text))) == []


def test_each_daemon_but_the_first_has_one_parent() -> None:
    for count in (1, 2, 65, 66, 200, 5000):
        started = sorted(child for logins in children(count) for child in logins)
        assert started == list(range(1, count))
        assert all(len(logins) <= 64 for logins in children(count))
