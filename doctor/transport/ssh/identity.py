"""What we can prove to a host: keys from files, certificates beside them, and the keys of an agent.

One short connection a request to the agent: many threads sign at once, and one that it hangs for holds up no other.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from doctor.engine.bounded_read import read_bounded_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.transport.ssh.config import SshHostConfig
from doctor.transport.ssh.lean_paramiko import paramiko

MAX_KEY_BYTES = 1 << 20
"""Bytes of a key file."""
_MAGIC = b"openssh-key-v1\0"
_CERTIFICATE_SUFFIX = "-cert-v01@openssh.com"
Sign = Callable[[bytes, str], bytes]
_MAX_ANSWER = 1 << 20
_SIGN_FLAGS = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}
_SIGN_TIMEOUT = 30.0
"""Seconds for a signature: the agent may want its user's consent first."""


class Identity:
    """One key or certificate, in the shape of a paramiko key: named, and able to sign."""

    public_blob = None

    def __init__(self, label: str, blob: bytes, sign: Sign) -> None:
        self.label, self.blob, self._sign = label, blob, sign
        self.sign_error = ""
        """Why its last signature failed."""

    def get_name(self) -> str:
        return key_type(self.blob)

    def asbytes(self) -> bytes:
        return self.blob

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> bytes:
        """A signature; one that fits no key when there is none to be had: the host then lets the next key try."""
        name = (algorithm or self.get_name()).removesuffix(_CERTIFICATE_SUFFIX)
        try:
            return self._sign(data, algorithm or name)
        except Exception as error:  # noqa: BLE001 -- raised here it would end the connection, from within paramiko
            self.sign_error = strip_control_chars(str(error)) or type(error).__name__
            return pack_string(name.encode()) + pack_string(b"\0" * 64)


class Keys(NamedTuple):
    """What there is to log in with, in the order to try, and what was left out and why."""

    identities: tuple[Identity, ...]
    locked: tuple[str, ...] = ()
    """Key files that need a passphrase and are not in the agent."""
    hardware: tuple[str, ...] = ()
    """Key files on a security key (FIDO): ssh can use them, we cannot."""
    notes: tuple[str, ...] = ()


class _KeyFile(NamedTuple):
    """A private key file."""

    path: str
    blob: bytes = b""
    """Its public half, if it could be derived."""
    sign: Sign | None = None
    locked: bool = False
    hardware: bool = False
    note: str = ""


class Keyring:
    """Keys by settings: every file is parsed once, every agent queried once."""

    def __init__(self, use_agent: bool = True) -> None:
        self._use_agent = use_agent
        self._lock = threading.Lock()
        self._files: dict[str, _KeyFile | None] = {}
        self._agents: dict[str, tuple[list[AgentKey], str]] = {}
        self._keys: dict[object, Keys] = {}

    def keys(self, settings: SshHostConfig) -> Keys:
        """The keys for a host; the same object for hosts of the same settings."""
        cache_key = (settings.identities, settings.certificates, settings.identities_only, settings.agent)
        with self._lock:
            if cache_key not in self._keys:
                self._keys[cache_key] = self._gather(settings)
            return self._keys[cache_key]

    def _gather(self, settings: SshHostConfig) -> Keys:
        files = [file for path in settings.identities if (file := self._file(path))]
        held, note = self._agent_keys(settings.agent)
        in_agent = {key.blob: key for key in held}
        signers: dict[bytes, Sign] = {file.blob: file.sign for file in files if file.sign}
        signers |= {blob: key.sign for blob, key in in_agent.items()}
        identities = [*_certificates(settings, files, signers)]
        identities += [_from_agent(in_agent[file.blob]) for file in files if file.blob in in_agent]
        if not settings.identities_only:
            identities += [_from_agent(key) for key in held]
        identities += [Identity(file.path, file.blob, file.sign) for file in files if file.sign]
        first: dict[bytes, Identity] = {}
        for identity in identities:
            first.setdefault(identity.blob, identity)
        return Keys(
            tuple(first.values()),
            tuple(file.path for file in files if file.locked and file.blob not in in_agent),
            tuple(file.path for file in files if file.hardware and file.blob not in in_agent),
            tuple(text for text in (note, *(file.note for file in files)) if text),
        )

    def _agent_keys(self, path: str) -> tuple[list[AgentKey], str]:
        if not path or not self._use_agent:
            return [], ""
        if path not in self._agents:
            try:
                self._agents[path] = list_keys(path), ""
            except (OSError, ValueError) as error:
                self._agents[path] = [], filled("the ssh-agent gave no keys: {0}", strip_control_chars(str(error)))
        return self._agents[path]

    def _file(self, path: str) -> _KeyFile | None:
        if path not in self._files:
            try:
                self._files[path] = _read_key_file(path)
            except FileNotFoundError:
                self._files[path] = None
            except (OSError, ValueError) as error:
                self._files[path] = _KeyFile(
                    path, note=filled("{0} could not be read: {1}", path, strip_control_chars(str(error)))
                )
        return self._files[path]


def _from_agent(key: AgentKey) -> Identity:
    return Identity(f"{strip_control_chars(key.comment, 60) or 'a key'} (agent)", key.blob, key.sign)


def _certificates(settings: SshHostConfig, files: Iterable[_KeyFile], signers: dict[bytes, Sign]) -> Iterable[Identity]:
    """Certificates whose private key is at hand, those of CertificateFile first."""
    for path in (*settings.certificates, *(f"{file.path}-cert.pub" for file in files)):
        blob = read_public_key(path)
        signed = next((sign for key, sign in signers.items() if blob and certifies(blob, key)), None)
        if signed:
            yield Identity(path, blob, signed)


def certifies(certificate: bytes, key: bytes) -> bool:
    """Whether a certificate is for a public key: behind its name and nonce come the same fields."""
    try:
        name, rest = unpack_string(certificate)
        key_name, fields = unpack_string(key)
        _, rest = unpack_string(rest)
    except ValueError:
        return False
    return name.decode("ascii", "replace") == key_name.decode(
        "ascii", "replace"
    ) + _CERTIFICATE_SUFFIX and rest.startswith(fields)


def key_type(blob: bytes) -> str:
    """The type that a public key names itself."""
    try:
        return unpack_string(blob)[0].decode("ascii", "replace")
    except ValueError:
        return "unknown"


def read_public_key(path: str) -> bytes:
    """The key or certificate in a ``.pub`` file; empty when there is none."""
    try:
        return base64.b64decode(read_bounded_text(path, MAX_KEY_BYTES, "replace").split()[1])
    except (OSError, ValueError, IndexError):
        return b""


def _read_key_file(path: str) -> _KeyFile:
    """Raises: OSError, ValueError."""
    content = read_bounded_text(path, MAX_KEY_BYTES, "replace")
    if not content.lstrip().startswith("-----"):  # the public half alone: the agent may hold the other
        blob = read_public_key(path)
        return _KeyFile(path, blob, note="" if blob else filled("{0} holds no key", path))
    blob, encrypted = _read_public_part(content)
    blob = blob or read_public_key(path + ".pub")
    if key_type(blob).startswith("sk-"):
        return _KeyFile(path, blob, hardware=True)
    if encrypted:
        return _KeyFile(path, blob, locked=True)
    try:
        key: Any = _key_class(content, blob).from_private_key_file(path)
    except Exception as error:  # noqa: BLE001 -- for a file that is no key, the parser may raise any exception
        raise ValueError(str(error) or type(error).__name__) from None
    return _KeyFile(path, key.asbytes(), lambda data, algorithm: bytes(key.sign_ssh_data(data, algorithm).asbytes()))


def _key_class(content: str, blob: bytes) -> Any:
    """The paramiko class that reads a private key file."""
    if "BEGIN RSA" in content or key_type(blob) == "ssh-rsa":
        return paramiko.RSAKey
    if "BEGIN EC" in content or key_type(blob).startswith("ecdsa-"):
        return paramiko.ECDSAKey
    return paramiko.Ed25519Key


def _read_public_part(content: str) -> tuple[bytes, bool]:
    """What a private key file holds in the clear: the public key, and whether a passphrase is needed."""
    body = "".join(line for line in content.splitlines() if not line.startswith("-") and ":" not in line)
    try:
        packed = base64.b64decode(body)
        if not packed.startswith(_MAGIC):
            return b"", "ENCRYPTED" in content
        cipher, rest = unpack_string(packed[len(_MAGIC) :])
        _, rest = unpack_string(rest)
        _, rest = unpack_string(rest)
        return unpack_string(rest[4:])[0], cipher != b"none"
    except (ValueError, binascii.Error):
        return b"", "ENCRYPTED" in content


_LIST, _LISTED, _SIGN, _SIGNED = 11, 12, 13, 14


class AgentKey(NamedTuple):
    """A key that the ssh-agent holds."""

    comment: str
    blob: bytes
    """The public key, or the certificate."""
    sign: Callable[[bytes, str], bytes]
    """Signs data with an algorithm. Raises: OSError, ValueError."""


def list_keys(path: str) -> list[AgentKey]:
    """The keys that the agent at a socket holds. Raises: OSError, ValueError."""
    kind, answer = _request(path, bytes([_LIST]), 5.0)
    if kind != _LISTED:
        raise ValueError("the ssh-agent does not list its keys")
    if len(answer) < 4:
        raise ValueError("the ssh-agent's answer is incomplete")
    (count,), rest = struct.unpack(">I", answer[:4]), answer[4:]
    held = []
    for _ in range(count):
        blob, rest = unpack_string(rest)
        comment, rest = unpack_string(rest)
        held.append(AgentKey(comment.decode("utf-8", "replace"), blob, _signer(path, blob)))
    return held


def _signer(path: str, blob: bytes) -> Callable[[bytes, str], bytes]:
    def sign(data: bytes, algorithm: str) -> bytes:
        flags = _SIGN_FLAGS.get(algorithm.removesuffix("-cert-v01@openssh.com"), 0)
        kind, answer = _request(
            path, bytes([_SIGN]) + pack_string(blob) + pack_string(data) + struct.pack(">I", flags), _SIGN_TIMEOUT
        )
        if kind != _SIGNED:
            raise ValueError("the ssh-agent refused to sign")
        return unpack_string(answer)[0]

    return sign


def _request(path: str, request: bytes, timeout: float) -> tuple[int, bytes]:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as agent:
        agent.settimeout(timeout)
        agent.connect(path)
        agent.sendall(pack_string(request))
        (length,) = struct.unpack(">I", _receive_exactly(agent, 4))
        if not 0 < length <= _MAX_ANSWER:
            raise ValueError("the program at the ssh-agent's socket is not an agent")
        answer = _receive_exactly(agent, length)
        return answer[0], answer[1:]


def _receive_exactly(agent: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        chunk = agent.recv(count - len(got))
        if not chunk:
            raise ConnectionResetError("the ssh-agent hung up")
        got += chunk
    return got


def pack_string(content: bytes) -> bytes:
    """Bytes with their length before them, as SSH packs them."""
    return struct.pack(">I", len(content)) + content


def unpack_string(packed: bytes) -> tuple[bytes, bytes]:
    """The first packed bytes, and the rest. Raises: ValueError."""
    if len(packed) < 4:
        raise ValueError("cut short")
    (length,) = struct.unpack(">I", packed[:4])
    if len(packed) < 4 + length:
        raise ValueError("cut short")
    return packed[4 : 4 + length], packed[4 + length :]
