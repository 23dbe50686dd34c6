"""How one host is to be reached, as the user's own ssh configuration has it."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from doctor.transport.messages import unreached

_TRUE = ("yes", "true", "ask", "unbound", "host-bound")
DEFAULT_IDENTITIES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")


class Target(msgspec.Struct, frozen=True):
    """A host as the user wrote it: ``host``, ``user@host`` or ``ssh://user@host:port``."""

    name: str
    user: str = ""
    port: int = 0

    def spelled(self) -> str:
        """For ssh's command line, the port aside."""
        return f"{self.user}@{self.name}" if self.user else self.name


_TARGET = re.compile(
    r"(?P<scheme>ssh://)?(?:(?P<user>\S+)@)?"
    r"(?P<name>\[[0-9A-Fa-f:.%\w]+\]|[^\s@\[\]/]+?)(?(scheme):(?P<port>\d+)|(?!))?/?"
)
_SAFE = re.compile(r"[A-Za-z0-9._:%\[\]~+=@-]+")


def target(words: str) -> Target:
    """Reads what the user wrote.

    Raises: Unreached, for what cannot be a host: ssh would take it for an option, or hand it to a shell.
    """
    found = _TARGET.fullmatch(words)
    user = found["user"] or "" if found else ""
    if not found or not _SAFE.fullmatch(found["name"]) or words.startswith("-") or found["name"].startswith("-"):
        raise unreached("name", f"{words!r} is not a host name")
    if user.startswith("-") or re.search(r"[\s'\"`$\\;&<>|(){}\x00-\x1f]", user):
        raise unreached("name", f"{user!r} is not a user name")
    return Target(found["name"].strip("[]"), user, int(found["port"] or 0))


def hop(words: str) -> Target:
    """A jump host as ProxyJump has it: ``[user@]host[:port]``. Raises: Unreached."""
    return target(words if words.startswith("ssh://") else "ssh://" + words)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a host is and how to log in to it."""

    host: str
    """The name that the user has for it."""
    name: str
    """The name or address to connect to (HostName)."""
    port: int = 22
    user: str
    identities: tuple[str, ...] = ()
    """Private key files, in order; some may not exist."""
    certificates: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str = ""
    """The agent's socket, or empty."""
    known_hosts: tuple[str, ...] = ()
    """The user's files; new keys go into the first."""
    global_known_hosts: tuple[str, ...] = ()
    revoked_keys: str = ""
    known_hosts_command: str = ""
    alias: str = ""
    """HostKeyAlias: the name in known_hosts."""
    hash_known_hosts: bool = False
    jumps: tuple[str, ...] = ()
    proxy: str = ""
    """ProxyCommand, its tokens filled in."""
    connect_timeout: float = 0.0
    """Seconds; 0 where the configuration does not say."""
    family: str = "any"
    bind: str = ""
    use_keys: bool = True
    use_password: bool = True
    gssapi: bool = False
    unsupported: str = ""
    """A setting that changes the way to the host and cannot be followed here."""


def timed(settings: Settings, connect_timeout: float) -> Settings:
    """The settings with the time to connect that holds in the end, in seconds."""
    return msgspec.structs.replace(settings, connect_timeout=connect_timeout)


Values = Mapping[str, list[str]]
"""What ssh -G says: the values of each keyword."""


def read(answer: str) -> dict[str, list[str]]:
    """What ``ssh -G`` printed: the values of each keyword, in order."""
    values: dict[str, list[str]] = {}
    for line in answer.splitlines():
        keyword, _, value = line.strip().partition(" ")
        values.setdefault(keyword.lower(), []).append(value.strip())
    return values


def settings(host: str, values: Values) -> Settings:
    """The settings that `read` gives for ``host``. Raises: Unreached, when they make no sense."""
    answer = _Answer(host, values)
    return Settings(
        host=host,
        name=answer.name,
        port=answer.port,
        user=answer.user,
        identities=answer.paths("identityfile"),
        certificates=answer.paths("certificatefile"),
        identities_only=answer.truth("identitiesonly"),
        agent=_agent(answer),
        known_hosts=answer.path_list("userknownhostsfile"),
        global_known_hosts=answer.path_list("globalknownhostsfile"),
        revoked_keys=answer.expand(answer.one("revokedhostkeys")),
        known_hosts_command=answer.one("knownhostscommand"),
        alias=answer.alias,
        hash_known_hosts=answer.truth("hashknownhosts"),
        jumps=tuple(part.strip() for part in answer.one("proxyjump").split(",") if part.strip()),
        proxy=answer.fill(answer.one("proxycommand")),
        connect_timeout=answer.number("connecttimeout", 0),
        family=answer.one("addressfamily", "any").lower(),
        bind=answer.one("bindaddress"),
        use_keys=answer.truth("pubkeyauthentication", "yes"),
        use_password=any(answer.truth(f"{way}authentication", "yes") for way in ("password", "kbdinteractive")),
        gssapi=answer.truth("gssapiauthentication"),
        unsupported="ProxyUseFdpass" if answer.truth("proxyusefdpass") else "",
    )


class _Answer:
    """The values that ssh gave for a host, and the tokens that may stand in them."""

    def __init__(self, host: str, values: Values) -> None:
        self._values = values
        account = pwd.getpwuid(os.getuid())
        self.name = self.one("hostname", host).strip("[]")
        self.port = int(self.number("port", 22))
        self.user = self.one("user") or account.pw_name
        self.alias = self.one("hostkeyalias").lower()
        self._home = account.pw_dir
        self._tokens = {"h": self.name, "n": host, "p": str(self.port), "r": self.user, "k": self.alias or self.name}
        self._tokens |= {"%": "%", "d": self._home, "u": account.pw_name, "i": str(account.pw_uid)}

    def one(self, keyword: str, default: str = "") -> str:
        value = next(iter(self._values.get(keyword, ())), default)
        return "" if value.lower() == "none" else value

    def truth(self, keyword: str, default: str = "no") -> bool:
        return self.one(keyword, default).lower() in _TRUE

    def number(self, keyword: str, default: float) -> float:
        """Raises: Unreached."""
        try:
            return float(self.one(keyword) or default)
        except ValueError:
            text = f"its ssh configuration makes no sense: {keyword} is {self.one(keyword)!r}"
            raise unreached("error", text) from None

    def fill(self, words: str) -> str:
        """Fills in ``%h``, ``%p`` and the like; what is not known stays."""
        return re.sub(r"%(.)", lambda found: self._tokens.get(found[1], found[0]), words)

    def expand(self, path: str) -> str:
        """Fills in tokens, ``~`` and ``${VARIABLES}``."""
        path = re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], ""), self.fill(path))
        return self._home + path[1:] if path == "~" or path.startswith("~/") else path

    def paths(self, keyword: str) -> tuple[str, ...]:
        """The files of a keyword that has one on each line."""
        given = (value.strip('"') for value in self._values.get(keyword, ()))
        return tuple(dict.fromkeys(self.expand(value) for value in given if value.lower() != "none"))

    def path_list(self, keyword: str) -> tuple[str, ...]:
        """The files of a keyword that has all on one line.

        ssh -G prints them without quotes: a word that begins no path goes on with the one before.
        """
        words, files = self.one(keyword), list[str]()
        for word in words.replace('"', " ").split():
            path = self.expand(word)
            if files and not path.startswith("/"):
                files[-1] += " " + path
            elif path.lower() != "none":
                files.append(path)
        return tuple(files)


def _agent(answer: _Answer) -> str:
    words = answer.one("identityagent", "SSH_AUTH_SOCK")
    if words == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    return os.environ.get(words[1:], "") if re.fullmatch(r"\$\w+", words) else answer.expand(words)


def defaults(values: Values) -> dict[str, list[str]]:
    """What ssh would have filled in, for the answers of a reader that does not."""
    ssh = Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh")
    given = {
        "identityfile": [str(ssh / name) for name in DEFAULT_IDENTITIES],
        "userknownhostsfile": [f"{ssh}/known_hosts {ssh}/known_hosts2"],
        "globalknownhostsfile": ["/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"],
    }
    return {**given, **{keyword: list(value) for keyword, value in values.items()}}
