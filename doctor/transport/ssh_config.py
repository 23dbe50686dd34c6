"""How one host is to be reached, as the user's own ssh configuration has it."""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from doctor.transport.wording import unreached

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


def read(answer: str) -> dict[str, list[str]]:
    """What ``ssh -G`` printed: the values of each keyword, in order."""
    values: dict[str, list[str]] = {}
    for line in answer.splitlines():
        keyword, _, value = line.strip().partition(" ")
        values.setdefault(keyword.lower(), []).append(value.strip())
    return values


def settings(host: str, values: Mapping[str, list[str]]) -> Settings:
    """The settings that `read` gives for ``host``. Raises: Unreached, when they make no sense."""

    def one(keyword: str, default: str = "") -> str:
        value = next(iter(values.get(keyword, ())), default)
        return "" if value.lower() == "none" else value

    def truth(keyword: str, default: str = "no") -> bool:
        return one(keyword, default).lower() in ("yes", "true", "ask")

    name, user = one("hostname", host).strip("[]"), one("user") or pwd.getpwuid(os.getuid()).pw_name
    try:
        port = int(one("port") or 22)
        timeout = float(one("connecttimeout") or 0)
    except ValueError as error:
        raise unreached("error", f"its ssh configuration makes no sense: {error}") from None
    alias = one("hostkeyalias").lower()
    tokens = {"h": name, "p": str(port), "r": user, "n": host, "k": alias or name, "%": "%", "d": _home()}
    tokens |= {"u": pwd.getpwuid(os.getuid()).pw_name, "i": str(os.getuid())}
    return Settings(
        host=host,
        name=name,
        port=port,
        user=user,
        identities=_files(values, "identityfile", tokens),
        certificates=_files(values, "certificatefile", tokens),
        identities_only=truth("identitiesonly"),
        agent=_agent(one("identityagent", "SSH_AUTH_SOCK"), tokens),
        known_hosts=known_files(one("userknownhostsfile"), tokens),
        global_known_hosts=known_files(one("globalknownhostsfile"), tokens),
        revoked_keys=expand(one("revokedhostkeys"), tokens),
        known_hosts_command=one("knownhostscommand"),
        alias=alias,
        hash_known_hosts=truth("hashknownhosts"),
        jumps=tuple(part.strip() for part in one("proxyjump").split(",") if part.strip()),
        proxy=fill(one("proxycommand"), tokens),
        connect_timeout=timeout,
        family=one("addressfamily", "any").lower(),
        bind=one("bindaddress"),
        use_keys=truth("pubkeyauthentication", "yes") or one("pubkeyauthentication") in ("unbound", "host-bound"),
        use_password=truth("passwordauthentication", "yes") or truth("kbdinteractiveauthentication", "yes"),
        gssapi=truth("gssapiauthentication"),
        unsupported="ProxyUseFdpass" if truth("proxyusefdpass") else "",
    )


def _home() -> str:
    return pwd.getpwuid(os.getuid()).pw_dir


def fill(words: str, tokens: Mapping[str, str]) -> str:
    """Replaces ``%h``, ``%p`` and the like; what is not known stays."""
    return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), words)


def expand(path: str, tokens: Mapping[str, str]) -> str:
    """A path with its tokens, ``~`` and ``${VARIABLES}`` filled in."""
    path = re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], ""), fill(path, tokens))
    return _home() + path[1:] if path == "~" or path.startswith("~/") else path


def _files(values: Mapping[str, list[str]], keyword: str, tokens: Mapping[str, str]) -> tuple[str, ...]:
    given = (value.strip('"') for value in values.get(keyword, ()))
    return tuple(dict.fromkeys(expand(value, tokens) for value in given if value.lower() != "none"))


def known_files(words: str, tokens: Mapping[str, str]) -> tuple[str, ...]:
    """Several files on one line. ssh -G prints no quotes: a word that begins no path goes on with the last one."""
    files: list[str] = []
    for word in shlex.split(words) if '"' in words else words.split():
        path = expand(word, tokens)
        if files and not path.startswith(("/", "~")):
            files[-1] += " " + path
        elif path.lower() != "none":
            files.append(path)
    return tuple(files)


def _agent(words: str, tokens: Mapping[str, str]) -> str:
    if words == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    return os.environ.get(words[1:], "") if words.startswith("$") and "{" not in words else expand(words, tokens)


def patterns(texts: Iterable[str]) -> frozenset[str] | None:
    """The patterns of all ``Host`` lines in configuration files, or None when there is more than these to look at.

    Two hosts that fit the same patterns get the same answer from ssh, unless a ``Match``, a canonical name or a
    token makes a difference.
    """
    found: set[str] = set()
    for text in texts:
        for line in text.splitlines():
            keyword, value = _keyword(line)
            if keyword == "host":
                found.update(word.lstrip("!") for word in value.replace('"', " ").split())
            elif (keyword == "match" and value.lower() != "all") or keyword.startswith("canonical"):
                return None
    return frozenset(found)


def _keyword(line: str) -> tuple[str, str]:
    found = re.match(r"\s*([A-Za-z0-9]+)(?:\s*=\s*|\s+)(.*)", line)
    return (found[1].lower(), found[2].strip()) if found else ("", "")


def config_texts(paths: Iterable[Path], home: Path, base: Path, depth: int = 0) -> list[str] | None:
    """The text of configuration files and of all that they include, or None when one cannot be followed."""
    texts: list[str] = []
    for path in paths:
        try:
            text = path.read_text(errors="replace")
        except FileNotFoundError:
            continue
        except OSError:
            return None
        included = _includes(text, home, base)
        inner = None if included is None or depth > 16 else config_texts(included, home, base, depth + 1)
        if inner is None:
            return None
        texts += [text, *inner]
    return texts


def _includes(text: str, home: Path, base: Path) -> list[Path] | None:
    """The files that ``Include`` lines name; None when that depends on the host or the environment."""
    found: list[Path] = []
    for line in text.splitlines():
        keyword, value = _keyword(line)
        for word in shlex.split(value) if keyword == "include" else ():
            if "%" in word or "$" in word or (word.startswith("~") and not word.startswith("~/")):
                return None
            path = home / word[2:] if word.startswith("~/") else base / word
            found += sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    return found


def defaults(values: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """What ssh would have filled in, for the answers of a reader that does not."""
    ssh = Path(_home(), ".ssh")
    given = {
        "identityfile": [str(ssh / name) for name in DEFAULT_IDENTITIES],
        "userknownhostsfile": [f"{ssh}/known_hosts {ssh}/known_hosts2"],
        "globalknownhostsfile": ["/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"],
    }
    return {**given, **{keyword: list(value) for keyword, value in values.items()}}
