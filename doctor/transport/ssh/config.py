"""How one host is to be reached, as the user's own ssh configuration has it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from doctor.engine.texts import filled
from doctor.hosts.nodeset import HostLogin
from doctor.transport import transport_error
from doctor.transport.options import SshOptions
from doctor.transport.ssh.config_files import own_account

_TRUE = ("yes", "true", "ask", "unbound", "host-bound")
DEFAULT_IDENTITIES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")


class Target(msgspec.Struct, frozen=True):
    """A host as the user wrote it: ``host``, ``user@host`` or ``ssh://user@host:port``."""

    name: str
    user: str = ""
    port: int = 0


_TARGET = re.compile(
    r"(?P<scheme>ssh://)?(?:(?P<user>\S+)@)?"
    r"(?P<name>\[[0-9A-Fa-f:.%\w]+\]|[^\s@\[\]/]+?)(?(scheme):(?P<port>[0-9]{1,5})|(?!))?/?"
)
_SAFE_NAME = re.compile(r"[A-Za-z0-9._:%\[\]~+=@-]+")


def parse_target(text: str) -> Target:
    """Reads what the user wrote.

    Raises: Unreached, for what cannot be a host: ssh would take it for an option, or hand it to a shell.
    """
    match = _TARGET.fullmatch(text)
    user = match["user"] or "" if match else ""
    if not match or not _SAFE_NAME.fullmatch(match["name"]) or text.startswith("-") or match["name"].startswith("-"):
        raise transport_error("name", filled("{0} is not a host name", f"{text!r}"))
    if user.startswith("-") or re.search(r"[\s'\"`$\\;&<>|(){}\x00-\x1f]", user):
        raise transport_error("name", filled("{0} is not a user name", f"{user!r}"))
    return Target(match["name"].strip("[]"), user, int(match["port"] or 0))


def target_of(host: str, options: SshOptions) -> Target:
    """A host with the user and the port that its list names. Raises: Unreached, as `parse_target`."""
    target, login = parse_target(host), options.logins.get(host, HostLogin())
    return Target(target.name, target.user or login.user, target.port or login.port)


def login_words(target: Target, options: SshOptions) -> str:
    """What follows ``ssh`` and ``ssh-copy-id`` in a shell: the options of the run that both take, and the host.

    >>> login_words(Target("n1", "ann"), SshOptions(config="my config", user="root", port=2222, identity=("/k",)))
    "-F 'my config' -i /k -p 2222 ann@n1"
    """
    port, user = target.port or options.port, target.user or options.user
    words = ["-F", options.config] if options.config else []
    words += [word for file in options.identity for word in ("-i", file)]
    words += ["-p", str(port)] if port else []
    return shlex.join([*words, f"{user}@{target.name}" if user else target.name])


def parse_hop(text: str) -> Target:
    """A jump host as ProxyJump has it: ``[user@]host[:port]``. Raises: Unreached."""
    return parse_target(text if text.startswith("ssh://") else "ssh://" + text)


class SshHostConfig(msgspec.Struct, frozen=True, kw_only=True):
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
    login: str = ""
    """What follows ``ssh`` and ``ssh-copy-id`` to reach the host as this run does; empty for a jump host."""


def with_connect_timeout(settings: SshHostConfig, connect_timeout: float) -> SshHostConfig:
    """The settings with the time to connect that holds in the end, in seconds."""
    return msgspec.structs.replace(settings, connect_timeout=connect_timeout)


Values = Mapping[str, list[str]]
"""The output of ssh -G: the values of each keyword."""


def parse_values(answer: str) -> dict[str, list[str]]:
    """What ``ssh -G`` printed: the values of each keyword, in order."""
    values: dict[str, list[str]] = {}
    for line in answer.splitlines():
        keyword, _, value = line.strip().partition(" ")
        values.setdefault(keyword.lower(), []).append(value.strip())
    return values


def host_config(host: str, values: Values) -> SshHostConfig:
    """The settings that `parse_values` gives for ``host``. Raises: Unreached, when they make no sense."""
    answer = _HostValues(host, values)
    return SshHostConfig(
        host=host,
        name=answer.name,
        port=answer.port,
        user=answer.user,
        identities=answer.paths("identityfile"),
        certificates=answer.paths("certificatefile"),
        identities_only=answer.boolean("identitiesonly"),
        agent=_agent_socket(answer),
        known_hosts=answer.path_list("userknownhostsfile"),
        global_known_hosts=answer.path_list("globalknownhostsfile"),
        revoked_keys=answer.expand(answer.value("revokedhostkeys")),
        known_hosts_command=answer.value("knownhostscommand"),
        alias=answer.alias,
        hash_known_hosts=answer.boolean("hashknownhosts"),
        jumps=tuple(part.strip() for part in answer.value("proxyjump").split(",") if part.strip()),
        proxy=answer.fill_tokens(answer.value("proxycommand")),
        connect_timeout=answer.number("connecttimeout", 0),
        family=answer.value("addressfamily", "any").lower(),
        bind=answer.value("bindaddress"),
        use_keys=answer.boolean("pubkeyauthentication", "yes"),
        use_password=any(answer.boolean(f"{way}authentication", "yes") for way in ("password", "kbdinteractive")),
        gssapi=answer.boolean("gssapiauthentication"),
        unsupported="ProxyUseFdpass" if answer.boolean("proxyusefdpass") else "",
    )


class _HostValues:
    """The values that ssh gave for a host, and the tokens that may stand in them."""

    def __init__(self, host: str, values: Values) -> None:
        self._values = values
        account = own_account()
        self.name = self.value("hostname", host).strip("[]")
        self.port = int(self.number("port", 22, 65535))
        self.user = self.value("user") or account.pw_name
        self.alias = self.value("hostkeyalias").lower()
        self._home = account.pw_dir
        self._tokens = {"h": self.name, "n": host, "p": str(self.port), "r": self.user, "k": self.alias or self.name}
        self._tokens |= {"%": "%", "d": self._home, "u": account.pw_name, "i": str(account.pw_uid)}

    def value(self, keyword: str, default: str = "") -> str:
        value = next(iter(self._values.get(keyword, ())), default)
        return "" if value.lower() == "none" else value

    def boolean(self, keyword: str, default: str = "no") -> bool:
        return self.value(keyword, default).lower() in _TRUE

    def number(self, keyword: str, default: float, largest: float = 1e9) -> float:
        """Raises: Unreached."""
        try:
            number = float(self.value(keyword) or default)
            if not 0 <= number <= largest:
                raise ValueError
            return number
        except ValueError:
            text = filled("its ssh configuration is invalid: {0} is {1}", keyword, f"{self.value(keyword)!r}")
            raise transport_error("error", text) from None

    def fill_tokens(self, text: str) -> str:
        """Fills in ``%h``, ``%p`` and the like; what is not known stays."""
        return re.sub(r"%(.)", lambda match: self._tokens.get(match[1], match[0]), text)

    def expand(self, path: str) -> str:
        """Fills in tokens, ``~`` and ``${VARIABLES}``."""
        path = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], ""), self.fill_tokens(path))
        return self._home + path[1:] if path == "~" or path.startswith("~/") else path

    def paths(self, keyword: str) -> tuple[str, ...]:
        values = (value.strip('"') for value in self._values.get(keyword, ()))
        return tuple(dict.fromkeys(self.expand(value) for value in values if value.lower() != "none"))

    def path_list(self, keyword: str) -> tuple[str, ...]:
        """The files of a keyword that has all on one line.

        ssh -G prints them without quotes: a word that begins no path goes on with the one before.
        """
        text, files = self.value(keyword), list[str]()
        for word in text.replace('"', " ").split():
            path = self.expand(word)
            if files and not path.startswith("/"):
                files[-1] += " " + path
            elif path.lower() != "none":
                files.append(path)
        return tuple(files)


def _agent_socket(answer: _HostValues) -> str:
    agent_setting = answer.value("identityagent", "SSH_AUTH_SOCK")
    if agent_setting == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    return (
        os.environ.get(agent_setting[1:], "") if re.fullmatch(r"\$\w+", agent_setting) else answer.expand(agent_setting)
    )


def with_defaults(values: Values) -> dict[str, list[str]]:
    """What ssh would have filled in, for the answers of a reader that does not."""
    ssh = Path(own_account().pw_dir, ".ssh")
    default_values = {
        "identityfile": [str(ssh / name) for name in DEFAULT_IDENTITIES],
        "userknownhostsfile": [f"{ssh}/known_hosts {ssh}/known_hosts2"],
        "globalknownhostsfile": ["/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"],
    }
    return {**default_values, **{keyword: list(value) for keyword, value in values.items()}}
