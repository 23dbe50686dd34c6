"""The second round's: whether the launcher's own SSH gets from the host of the launch line to the others."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.fact import Fact, PerHost, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import filled
from doctor.facts.visit import Reachability

RADIX = 64
"""Hosts to which each host of Open MPI's tree logs in."""
AT_ONCE = 16
"""Logins at a time: sshd turns more away that have not logged in yet (MaxStartups 10:30:100)."""
CONNECT_SECONDS = 10
LOGIN_SECONDS = 20
ALL_SECONDS = 60
MOST_TARGETS = 512
MOST_BACK = 8
"""Hosts that log in to the first where the launch may start on another one."""
MARK = "doctor-login-"
"""Begins the line by which the other host's shell shows that it runs commands."""
LAST_BYTES = 1500
"""Of what ssh says."""


def _settings(target: str, options: list) -> dict:  # type: ignore[type-arg]
    """What ssh(1) itself makes of the user's configuration for a host."""
    values: dict = {}  # type: ignore[type-arg]
    try:
        done = subprocess.run(
            ["ssh", "-G", *options, "--", target],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=CONNECT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return values
    for line in done.stdout.decode("utf-8", "replace").splitlines()[:300]:
        name, _, value = line.partition(" ")
        values.setdefault(name.lower(), value)
    return values


def _own_options(settings: dict, folder: str) -> list:  # type: ignore[type-arg]
    """Nothing is asked, forwarded, shared or kept: where a new host key would be written down, that is into a copy."""
    options = ["-n", "-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=" + str(CONNECT_SECONDS)]
    for setting in ("ControlMaster=no", "ControlPath=none", "ClearAllForwardings=yes", "UpdateHostKeys=no"):
        options += ["-o", setting]
    options += ["-o", "LogLevel=INFO", "-o", "ConnectionAttempts=1"]
    if settings.get("stricthostkeychecking", "ask") not in ("true", "yes", "ask"):
        copied_keys = os.path.join(folder, "known_hosts")
        with open(copied_keys, "ab") as copy:
            for path in settings.get("userknownhostsfile", "").split():
                with contextlib.suppress(OSError), open(os.path.expanduser(path), "rb") as file:
                    copy.write(file.read(1 << 22) + b"\n")
        options += ["-o", "UserKnownHostsFile=" + copied_keys]
    return options


def _begin(target: str, options: list, folder: str) -> tuple:  # type: ignore[type-arg]
    files = [tempfile.TemporaryFile(dir=folder) for _ in range(2)]  # noqa: SIM115 - closed by `_result`
    own = tempfile.mkdtemp(dir=folder)
    # Of a setting that is given twice, ssh takes the first.
    argv = ["ssh", *_own_options(_settings(target, options), own), *options, "--", target]
    environ = dict(os.environ, LC_ALL="C")
    process = subprocess.Popen(
        [*argv, "echo " + MARK + "$((6*7))"],
        stdin=subprocess.DEVNULL,
        stdout=files[0],
        stderr=files[1],
        env=environ,
        start_new_session=True,
    )
    return target, process, files, time.monotonic()


def _text(file: Any) -> str:
    size = file.seek(0, 2)
    file.seek(max(0, size - LAST_BYTES))
    return str(file.read(LAST_BYTES).decode("utf-8", "replace"))


def _result(target: str, process: Any, files: list, began: float) -> list:  # type: ignore[type-arg]
    out, err = _text(files[0]), _text(files[1])
    for file in files:
        file.close()
    ran = MARK + "42" in out.replace("\r", "").split("\n")
    return [target, process.returncode, ran, err, round(time.monotonic() - began, 2)]


def _end(process: Any) -> None:
    """With what it has started, such as a ProxyCommand."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _targets(login: dict, task: dict) -> tuple:  # type: ignore[type-arg]
    """The hosts to log in to, and whether only that is tried which leads back."""
    targets = task["tree"] if login.get("by_tree") else task["all"]
    targets = [name for name in targets if not name.startswith("-")]
    if login.get("to_itself") and task["itself"]:
        targets = [task["itself"], *targets]
    return targets or task["back"], bool(task["back"] and not targets)


def try_logins(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: logs in to the others as the launcher would, with the user's own keys and configuration."""
    login = arguments.get("login")
    if not login:
        return {"program": "", "results": []}
    targets, is_back = _targets(login, arguments[arguments["asked"]])  # type: ignore[literal-required]
    answer = {"program": login["program"], "results": [], "skipped": max(0, len(targets) - MOST_TARGETS)}
    answer["is_back"] = is_back
    if not shutil.which("ssh"):
        answer["problem"] = "there is no ssh on the host"
        return answer
    options = list(login.get("arguments", []))
    folder = tempfile.mkdtemp(prefix="doctor-login-")
    waiting = targets[:MOST_TARGETS]
    running: list = []  # type: ignore[type-arg]
    end = time.monotonic() + ALL_SECONDS
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE and time.monotonic() < end:
                running.append(_begin(waiting.pop(0), options, folder))
            time.sleep(0.02)
            for entry in list(running):
                _, process, _, began = entry
                if process.poll() is None and time.monotonic() < min(end, began + LOGIN_SECONDS):
                    continue
                if process.poll() is None:
                    _end(process)
                    process.returncode = None
                running.remove(entry)
                answer["results"].append(_result(*entry))
            if time.monotonic() >= end and not running:
                answer["skipped"] += len(waiting)
                break
    finally:
        for _, process, _, _ in running:
            _end(process)
        shutil.rmtree(folder, ignore_errors=True)
    return answer


class LoginAttempt(msgspec.Struct, frozen=True, array_like=True):
    """One login to another host."""

    target: str
    code: int | None
    """Of ssh; None where it was ended for its time."""
    ran: bool
    """The other host's shell ran the command."""
    text: str
    """The last that ssh and the other host wrote to stderr."""
    seconds: float


class LauncherLogins(Fact, frozen=True):
    r"""What came of SSH logins from the host of the launch line to the others, as the launcher makes them.

    Raw output, as JSON; of a launch without such a launcher, ``program`` is empty::

        {"program": "mpirun", "skipped": 0, "results": [["w2", 0, true, "", 0.31],
         ["w3", 255, false, "Host key verification failed.\r\n", 0.12]]}
    """

    probe = ask(try_logins, job=True, timeout=ALL_SECONDS + LOGIN_SECONDS + 10)
    needs = (Reachability,)
    is_trial = True

    program: str
    results: tuple[LoginAttempt, ...]
    skipped: int = 0
    """Hosts that were not tried for the time."""
    problem: str = ""
    is_back: bool = False
    """Of one of the other hosts to the first: only where the launch starts there, this way is taken."""

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> dict[str, object]:
        visits: PerHost[Reachability] = fleet_facts[Reachability]
        hosts = list(visits)
        if len(hosts) < 2:
            return {}
        here = next((host for host in hosts if visits[host].local), None)
        head = here or hosts[0]
        order = [head, *(host for host in hosts if host != head)]
        tree = children(len(order))
        return {
            host: {
                "all": order[1:] if host == head else [],
                "tree": [order[child] for child in tree[place]],
                "itself": head if host == head else "",
                "back": [head] if here is None and 0 < place <= MOST_BACK else [],
            }
            for place, host in enumerate(order)
            if tree[place] or (here is None and place <= MOST_BACK)
        }

    @classmethod
    def read(cls, answer: ProbeAnswer) -> LauncherLogins:
        try:
            return msgspec.convert(answer.json(), cls)
        except msgspec.ValidationError as error:
            raise Unreadable(filled("no list of logins: {0}", error)) from None


def children(count: int, radix: int = RADIX) -> list[list[int]]:
    """The daemons that each daemon starts, by place in Open MPI's list; the first of the list is mpirun's own.

    >>> children(4), children(5, 2)
    ([[1, 2, 3], [], [], []], [[1, 2], [3], [4], [], []])
    """
    tree: list[list[int]] = []
    for place in range(count):
        reached = level = 1
        while reached < place + 1:
            level *= radix
            reached += level
        tree.append([child for child in range(place + level, place + level * radix + 1, level) if child < count])
    return tree


CHANGED_KEY = "its host key is not the one in known_hosts"
UNKNOWN_KEY = "its host key is not in known_hosts"
BAD_CONFIGURATION = "its SSH configuration is refused"
UNRESOLVED = "its name does not resolve there"
PASSWORD = "no key is accepted; a password is asked"
NO_KEY = "no key is accepted"
NO_ANSWER = "no answer in time"
NO_SHELL = "its shell runs no command"
UNFINISHED = "the login had not ended in time"
_SIGNS = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED|REVOKED HOST KEY|is revoked", CHANGED_KEY),
    (r"Host key verification failed|No \S+ host key is known", UNKNOWN_KEY),
    (r"Bad owner or permissions on|Bad configuration option|terminating, \d+ bad", BAD_CONFIGURATION),
    (r"Could not resolve hostname", UNRESOLVED),
    (r"Permission denied \([^)]{0,200}(?:password|keyboard-interactive)", PASSWORD),
    (r"Permission denied|Too many authentication failures", NO_KEY),
    (r"Connection refused", "its SSH port refuses connections"),
    (r"No route to host|Network is unreachable|Host is down", "there is no route to it"),
    (r"timed out", NO_ANSWER),
    (r"[Cc]onnection closed|closed by|[Cc]onnection reset|Broken pipe|kex_exchange", "the connection was cut"),
)


def login_problem(attempt: LoginAttempt) -> str:
    """Why the launcher would not get there; empty where it would."""
    if attempt.ran and attempt.code == 0:
        return ""
    if attempt.code is None:
        return UNFINISHED
    problem = next((text for sign, text in _SIGNS if re.search(sign, attempt.text)), "")
    if attempt.code == 255 and problem:
        return problem
    return NO_SHELL if attempt.code != 255 else "ssh failed"


def last_words(attempt: LoginAttempt) -> str:
    """The line of ssh that says it best: the last one, without banners before it."""
    lines: Sequence[str] = [line.strip() for line in attempt.text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
