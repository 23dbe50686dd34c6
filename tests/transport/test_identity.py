"""Which keys there are to log in with, and in which order: made by ssh-keygen, held by a real ssh-agent."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from doctor.transport.ssh import identity as agent
from doctor.transport.ssh.config import SshHostConfig
from doctor.transport.ssh.identity import Identity, Keyring, certifies, key_type, read_public_key

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen here")
Keygen = Callable[..., Path]
DATA = b"what a host asks us to sign"


@pytest.fixture
def keygen(tmp_path: Path) -> Keygen:
    def make(name: str, *argv: str, kind: str = "ed25519", passphrase: str = "") -> Path:
        path = tmp_path / name
        arguments = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", name, "-f", path, *argv]
        subprocess.run(arguments, check=True)
        return path

    return make


@pytest.fixture
def ssh_agent(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()  # it listens
    yield path
    process.terminate()
    process.communicate()


def certify(ca: Path, key: Path, principal: str = "root") -> Path:
    arguments = ["ssh-keygen", "-q", "-s", ca, "-I", "test", "-n", principal, f"{key}.pub"]
    subprocess.run(arguments, check=True)
    return Path(f"{key}-cert.pub")


def add(ssh_agent: Path, *keys: Path) -> None:
    environment = {**os.environ, "SSH_AUTH_SOCK": str(ssh_agent)}
    subprocess.run(["ssh-add", "-q", *keys], check=True, env=environment, stdin=subprocess.DEVNULL)


def settings(
    *keys: Path, agent: Path | str = "", certificates: tuple[Path, ...] = (), only: bool = False
) -> SshHostConfig:
    return SshHostConfig(
        host="h",
        name="h",
        user="root",
        identities=tuple(map(str, keys)),
        certificates=tuple(map(str, certificates)),
        agent=str(agent),
        identities_only=only,
    )


def labels(identities: tuple[Identity, ...]) -> list[str]:
    return [Path(identity.label).name for identity in identities]


def signs(identity: Identity, key: Path, algorithm: str) -> bool:
    """Whether paramiko takes the identity's signature for one of the key."""
    signature = identity.sign_ssh_data(DATA, algorithm)
    blob = read_public_key(f"{key}.pub")
    return bool(paramiko.PKey.from_type_string(key_type(blob), blob).verify_ssh_sig(DATA, paramiko.Message(signature)))


@pytest.mark.parametrize(
    ("made_as", "algorithm", "argv"),
    [
        ("ed25519", "ssh-ed25519", ()),
        ("rsa", "rsa-sha2-512", ()),
        ("rsa", "rsa-sha2-256", ("-m", "PEM")),
        ("ecdsa", "ecdsa-sha2-nistp256", ()),
        ("ecdsa", "ecdsa-sha2-nistp256", ("-m", "PEM")),
    ],
)
def test_every_kind_of_key_signs(keygen: Keygen, made_as: str, algorithm: str, argv: tuple[str, ...]) -> None:
    key = keygen("key", *argv, kind=made_as)
    (identity,) = Keyring().keys(settings(key)).identities
    assert identity.asbytes() == read_public_key(f"{key}.pub")
    assert signs(identity, key, algorithm)


@pytest.mark.parametrize(("made_as", "algorithm"), [("ed25519", "ssh-ed25519"), ("rsa", "rsa-sha2-512")])
def test_an_agent_signs(keygen: Keygen, ssh_agent: Path, made_as: str, algorithm: str) -> None:
    key = keygen("key", kind=made_as)
    add(ssh_agent, key)
    (identity,) = Keyring().keys(settings(agent=ssh_agent)).identities
    assert identity.label == "key (agent)"
    assert signs(identity, key, algorithm)


def test_the_order_is_that_of_ssh(keygen: Keygen, ssh_agent: Path) -> None:
    """Certificates, configured keys that the agent holds, the agent's others, then files."""
    ca, certified, held, other, path = (keygen(name) for name in ("ca", "certified", "held", "other", "plain"))
    add(ssh_agent, other, held)
    certify(ca, certified)
    keys = Keyring().keys(settings(path, held, certified, agent=ssh_agent))
    assert labels(keys.identities) == ["certified-cert.pub", "held (agent)", "other (agent)", "plain", "certified"]


def test_with_identities_only_the_agent_does_not_add_its_own(keygen: Keygen, ssh_agent: Path) -> None:
    held, other = keygen("held"), keygen("other")
    add(ssh_agent, held, other)
    assert labels(Keyring().keys(settings(held, agent=ssh_agent, only=True)).identities) == ["held (agent)"]


def test_the_public_half_alone_names_a_key_of_the_agent(keygen: Keygen, ssh_agent: Path) -> None:
    held, other = keygen("held"), keygen("other")
    add(ssh_agent, other, held)
    keys = Keyring().keys(settings(Path(f"{held}.pub"), agent=ssh_agent, only=True))
    assert labels(keys.identities) == ["held (agent)"]


class TestCertificates:
    def test_beside_the_key(self, keygen: Keygen) -> None:
        key = keygen("key")
        certificate = certify(keygen("ca"), key)
        first, second = Keyring().keys(settings(key)).identities
        assert (first.get_name(), second.get_name()) == ("ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519")
        assert first.asbytes() == read_public_key(str(certificate))
        assert signs(first, key, "ssh-ed25519-cert-v01@openssh.com")

    def test_of_an_rsa_key_in_an_agent(self, keygen: Keygen, ssh_agent: Path) -> None:
        key = keygen("key", kind="rsa")
        certify(keygen("ca"), key)
        add(ssh_agent, key)
        names = {identity.get_name() for identity in Keyring().keys(settings(agent=ssh_agent)).identities}
        assert names == {"ssh-rsa", "ssh-rsa-cert-v01@openssh.com"}
        for identity in Keyring().keys(settings(agent=ssh_agent)).identities:
            assert signs(identity, key, "rsa-sha2-512-cert-v01@openssh.com")

    def test_named_apart(self, keygen: Keygen, tmp_path: Path) -> None:
        key = keygen("key")
        moved = certify(keygen("ca"), key).rename(tmp_path / "elsewhere.pub")
        assert labels(Keyring().keys(settings(key, certificates=(moved,))).identities) == ["elsewhere.pub", "key"]

    def test_of_another_key_are_of_no_use(self, keygen: Keygen) -> None:
        certificate = certify(keygen("ca"), keygen("other"))
        key = keygen("key")
        assert labels(Keyring().keys(settings(key, certificates=(certificate,))).identities) == ["key"]
        assert not certifies(b"", b"")


class TestWhatCannotBeUsed:
    @pytest.mark.parametrize("argv", [(), ("-m", "PEM")])
    def test_a_locked_key_is_told_and_nobody_is_asked(self, keygen: Keygen, argv: tuple[str, ...]) -> None:
        key = keygen("key", *argv, kind="rsa", passphrase="secret")
        assert Keyring().keys(settings(key))[:2] == ((), (str(key),))

    def test_a_locked_key_that_the_agent_holds_is_none(self, keygen: Keygen, ssh_agent: Path, tmp_path: Path) -> None:
        key = keygen("key")
        add(ssh_agent, key)
        subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", key], check=True)
        keys = Keyring().keys(settings(key, agent=ssh_agent))
        assert labels(keys.identities) == ["key (agent)"]
        assert keys.locked == ()

    def test_a_key_on_a_security_key_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "id_ed25519_sk"
        path.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")
        name = b"sk-ssh-ed25519@openssh.com"
        import base64

        (tmp_path / "id_ed25519_sk.pub").write_text(
            f"sk {base64.b64encode(agent.pack_string(name) + b'x').decode()} me\n"
        )
        assert Keyring().keys(settings(path)).hardware == (str(path),)

    @pytest.mark.parametrize("content", ["", "nonsense", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", "\0\xff"])
    def test_a_file_that_is_no_key_is_told(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "key").write_text(content)
        keys = Keyring().keys(settings(tmp_path / "key"))
        assert keys.identities == ()
        assert str(tmp_path / "key") in keys.notes[0]

    def test_a_file_that_is_not_there_is_not_worth_a_word(self, tmp_path: Path) -> None:
        assert Keyring().keys(settings(tmp_path / "none")) == ((), (), (), ())

    def test_an_agent_that_is_gone_is_told(self, tmp_path: Path) -> None:
        assert "gave no keys" in Keyring().keys(settings(agent=tmp_path / "none")).notes[0]

    def test_an_agent_is_not_asked_when_it_is_not_wanted(self, tmp_path: Path) -> None:
        assert Keyring(use_agent=False).keys(settings(agent=tmp_path / "none")).notes == ()

    def test_an_agent_that_refuses_to_sign_costs_its_own_key_alone(self, keygen: Keygen, ssh_agent: Path) -> None:
        key = keygen("key")
        add(ssh_agent, key)
        (identity,) = Keyring().keys(settings(agent=ssh_agent)).identities
        subprocess.run(["ssh-add", "-q", "-D"], env={**os.environ, "SSH_AUTH_SOCK": str(ssh_agent)}, check=True)
        assert not signs(identity, key, "ssh-ed25519")
        assert identity.sign_error == "the ssh-agent refused to sign"


def test_files_are_parsed_and_agents_asked_once(keygen: Keygen, ssh_agent: Path) -> None:
    key, held = keygen("key"), keygen("held")
    add(ssh_agent, held)
    keyring = Keyring()
    before = keyring.keys(settings(key, agent=ssh_agent))
    key.unlink()
    ssh_agent.unlink()
    assert keyring.keys(settings(key, agent=ssh_agent)) is before
    assert labels(keyring.keys(settings(key, agent=ssh_agent, only=True)).identities) == ["key"]


def test_many_threads_sign_at_once(keygen: Keygen, ssh_agent: Path) -> None:
    key = keygen("key")
    add(ssh_agent, key)
    (identity,) = Keyring().keys(settings(agent=ssh_agent)).identities
    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(lambda _: signs(identity, key, "ssh-ed25519"), range(64)))


@pytest.mark.parametrize(
    "answer", [b"", b"\0\0\0\0", b"\xff\xff\xff\xff", agent.pack_string(b"\x05"), agent.pack_string(b"\x0c\0")]
)
def test_an_agent_that_talks_nonsense_is_told(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent"))
        listener.listen()

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(100)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        keys = Keyring().keys(settings(agent=tmp_path / "agent"))
        thread.join()
    assert keys.identities == ()
    assert "gave no keys" in keys.notes[0]
