"""The limits of a login after a reboot: those that PAM sets from files, else those that sshd starts with."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Iterator

from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import beginning, filled
from doctor.facts.boot.files import SERVICE_LIMIT_FILES, BootFiles
from doctor.facts.kernel import sysctl_path
from doctor.facts.limits import Limit, ResourceLimits


def describe_login(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the user that we log in as, and its groups."""
    try:
        user = pwd.getpwuid(os.getuid())[0]
    except KeyError:
        user = ""
    groups = []
    for number in sorted(set(os.getgroups()) | {os.getgid()}):
        try:
            groups.append(grp.getgrgid(number)[0])
        except KeyError:
            continue
    return {"uid": os.getuid(), "user": user, "groups": groups}


class LoginUser(Fact, frozen=True):
    """The user that doctor logs in as.

    Raw output, as JSON::

        {"uid": 1000, "user": "ann", "groups": ["ann", "hpc"]}
    """

    probe = ask(describe_login)

    uid: int
    user: str
    groups: tuple[str, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> LoginUser:
        data = answer.json()
        return cls(uid=int(data["uid"]), user=str(data["user"]), groups=tuple(map(str, data["groups"])))


def _applies_limits(files: BootFiles) -> bool:
    """PAM applies limits to logins over SSH. Raises: Unreadable."""
    visited, waiting = set[str](), ["sshd"]
    while waiting:
        name = waiting.pop()
        if name in visited or len(visited) > 50:
            continue
        visited.add(name)
        for line in files.text(f"/etc/pam.d/{name}").splitlines():
            fields = line.split("#")[0].split()
            if (
                len(fields) > 2
                and fields[0].lstrip("-") == "session"
                and any("pam_limits" in word for word in fields[2:])
            ):
                return True
            if fields[:1] == ["@include"] and len(fields) > 1:
                waiting.append(fields[1])
            if len(fields) > 2 and fields[1] in ("include", "substack"):
                waiting.append(fields[2])
    return False


def _lines(files: BootFiles, login: LoginUser, item: str) -> Iterator[tuple[int, str, str]]:
    """How closely a line names the user, the kind and the value of limits.conf(5), in the order of reading.

    A user's own line counts more than a group's, and that more than one for all; neither of these is for root.
    """
    texts = [files.text("/etc/security/limits.conf"), *files.folder("/etc/security/limits.d").values()]
    for text in texts:
        for line in text.splitlines():
            fields = line.split("#")[0].split()
            if len(fields) != 4 or fields[2] != item or fields[1] not in ("soft", "hard", "-"):
                continue
            domain = fields[0]
            if domain == login.user:
                yield 3, fields[1], fields[3]
            elif re.fullmatch(r"[0-9]*:[0-9]*", domain) and domain != ":":
                first, _, last = domain.partition(":")
                if int(first or last) <= login.uid <= int(last or first):
                    yield 3, fields[1], fields[3]
            elif login.uid and domain[:1] == "@" and domain[1:] in login.groups:
                yield 2, fields[1], fields[3]
            elif login.uid and domain == "*":
                yield 1, fields[1], fields[3]


def _limit(files: BootFiles, login: LoginUser, item: str, default: Limit, scale: int = 1) -> Limit:
    """Raises: Unreadable."""
    held: dict[str, tuple[int, int | None]] = {"soft": (0, default.soft), "hard": (0, default.hard)}
    for closeness, kind, text in _lines(files, login, item):
        if text not in ("unlimited", "infinity", "-1") and not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
            raise Unreadable(filled("limits.conf: {0} {1}: expected a number", item, f"{beginning(text, 40)!r}"))
        value = int(text) * scale if text.isdecimal() else None
        for name in ("soft", "hard") if kind == "-" else (kind,):
            if closeness >= held[name][0]:
                held[name] = (closeness, value)
    soft, hard = held["soft"][1], held["hard"][1]
    if hard is not None and (soft is None or soft > hard):
        soft = hard
    return Limit(soft, hard)


def login_limits(files: BootFiles, login: LoginUser, now: ResourceLimits) -> ResourceLimits:
    """What files set; else the kernel's and systemd's own: 1024 open files, half of threads-max processes.

    Of locked memory a limit that is none of the known defaults is unknown. Raises: Unreadable.
    """
    threads = files.text(sysctl_path("kernel.threads-max")).strip()
    processes = int(threads) // 2 if threads.isdecimal() else None
    nproc = _service_limit(files, "NPROC") or (Limit(processes, processes) if processes else now.nproc)
    nofile = _service_limit(files, "NOFILE") or Limit(1024, now.nofile.hard)
    memlock = _service_limit(files, "MEMLOCK")
    if not _applies_limits(files):
        return ResourceLimits(nofile=nofile, memlock=memlock or _locked_memory(now.memlock), nproc=nproc)
    if memlock is None and not any(_lines(files, login, "memlock")):
        memlock = _locked_memory(now.memlock)
    return ResourceLimits(
        nofile=_limit(files, login, "nofile", nofile),
        memlock=_limit(files, login, "memlock", memlock or now.memlock, 1024),
        nproc=_limit(files, login, "nproc", nproc),
    )


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _service_limit(files: BootFiles, name: str) -> Limit | None:
    """What systemd's files give to sshd: ``LimitNOFILE=1024:524288`` of its unit, else ``DefaultLimitNOFILE=``.

    Raises: Unreadable.
    """
    folders = [path.rpartition("/")[0] for path in SERVICE_LIMIT_FILES[1:]]
    texts = [files.text(SERVICE_LIMIT_FILES[0])]
    texts += [text for folder in folders for text in files.folder(folder).values()]
    limit = None
    for pattern in (rf"^DefaultLimit{name}=(.*)$", rf"^Limit{name}=(.*)$"):
        for text in texts:
            limit = next(reversed(re.findall(pattern, text, re.M)), limit)
    if not limit:
        return None
    soft, _, hard = limit.strip().partition(":")
    return Limit(_service_value(soft), _service_value(hard or soft))


def _service_value(text: str) -> int | None:
    """Raises: Unreadable."""
    match = re.fullmatch(r"([0-9]{1,18})([KMGT]?)", text, re.ASCII)
    if text != "infinity" and not match:
        raise Unreadable(filled("a limit of {0} in a file of systemd is not understood", f"{beginning(text, 40)!r}"))
    return int(match[1]) * _UNITS[match[2]] if match else None


DEFAULT_LOCKED_BYTES = (1 << 16, 1 << 23, 1 << 26)
"""Of the kernel before and since 5.16, and of systemd."""


def _locked_memory(now: Limit) -> Limit:
    """Raises: Unreadable."""
    if now.soft in DEFAULT_LOCKED_BYTES:
        return now
    raise Unreadable("no file sets the limit of locked memory: what a login gets after a reboot is not known")
