"""Logging in to real sshd's: keys, certificates, agents, passphrases and passwords."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from doctor.transport import TransportError

if TYPE_CHECKING:
    from tests.transport.conftest import Ground

pytestmark = pytest.mark.hosts
Keygen = Callable[..., Path]


@pytest.fixture
def host(ground: Ground) -> str:
    return ground.good[6]


@pytest.fixture
def keygen(tmp_path: Path) -> Keygen:
    def make(name: str, kind: str = "ed25519", passphrase: str = "") -> Path:
        path = tmp_path / name
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", name, "-f", path], check=True)
        return path

    return make


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()  # it listens
        yield path
        process.terminate()


def add(agent: Path, *keys: Path) -> None:
    environment = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    subprocess.run(["ssh-add", "-q", *keys], check=True, env=environment, stdin=subprocess.DEVNULL)


def authorize(ground: Ground, host: str, *keys: Path) -> None:
    lines = "".join(Path(f"{key}.pub").read_text() for key in keys)
    ground.fleet.write(host, "/root/.ssh/authorized_keys", lines)


def logs_in(ground: Ground, host: str, **config: str) -> bool:
    return ground.ssh(config=config).run(host, "id -un", b"", 10).out == b"root\n"


def stop(ground: Ground, host: str, config: dict[str, str], **options: object) -> TransportError:
    with pytest.raises(TransportError) as error:
        ground.ssh(config=config, **options).run(host, "true", b"", 5)  # type: ignore[arg-type]
    return error.value


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_key_file(ground: Ground, host: str, keygen: Keygen, kind: str) -> None:
    key = keygen("key", kind)
    authorize(ground, host, key)
    assert logs_in(ground, host, IdentityFile=str(key))


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_an_agent(ground: Ground, host: str, keygen: Keygen, agent: Path, kind: str) -> None:
    key = keygen("key", kind)
    authorize(ground, host, key)
    add(agent, key)
    assert logs_in(ground, host, IdentityFile="none", IdentitiesOnly="no", IdentityAgent=str(agent))


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
@pytest.mark.parametrize("from_agent", [False, True])
def test_a_certificate_beside_the_key(
    ground: Ground, host: str, keygen: Keygen, agent: Path, kind: str, from_agent: bool
) -> None:
    ca, key = keygen("ca"), keygen("key", kind)
    subprocess.run(["ssh-keygen", "-q", "-s", ca, "-I", "test", "-n", "root", f"{key}.pub"], check=True)
    ground.fleet.write(host, "/root/.ssh/authorized_keys", f"cert-authority {Path(f'{ca}.pub').read_text()}")
    if not from_agent:
        assert logs_in(ground, host, IdentityFile=str(key))
        return
    add(agent, key)
    assert logs_in(ground, host, IdentityFile="none", IdentitiesOnly="no", IdentityAgent=str(agent))


def test_a_certificate_that_is_no_longer_good_gives_way_to_the_key(ground: Ground, host: str, keygen: Keygen) -> None:
    ca, key = keygen("ca"), keygen("key")
    old = ["-V", "20200101:20200102"]
    subprocess.run(["ssh-keygen", "-q", "-s", ca, "-I", "test", "-n", "root", *old, f"{key}.pub"], check=True)
    authorize(ground, host, key)
    assert logs_in(ground, host, IdentityFile=str(key))


class TestPassphrases:
    def test_without_an_agent_it_is_said_and_not_asked(self, ground: Ground, host: str, keygen: Keygen) -> None:
        key = keygen("key", passphrase="secret")
        error = stop(ground, host, {"IdentityFile": str(key)})
        assert (error.kind, error.hint) == ("auth", f"ssh-add {key}")
        assert f"{key} needs its passphrase" in error.text

    def test_the_agent_has_the_key_unlocked(self, ground: Ground, host: str, keygen: Keygen, agent: Path) -> None:
        key = keygen("key")
        add(agent, key)
        subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", key], check=True)
        authorize(ground, host, key)
        assert logs_in(ground, host, IdentityFile=str(key), IdentityAgent=str(agent))


class TestManyKeys:
    def test_the_right_one_among_several(self, ground: Ground, host: str, keygen: Keygen, agent: Path) -> None:
        keys = [keygen(f"key{number}") for number in range(4)]
        authorize(ground, host, keys[-1])
        add(agent, *keys)
        assert logs_in(ground, host, IdentityFile="none", IdentitiesOnly="no", IdentityAgent=str(agent))

    def test_the_key_that_one_host_took_is_the_first_for_the_next(
        self, ground: Ground, host: str, keygen: Keygen, agent: Path
    ) -> None:
        keys = [keygen(f"key{number}") for number in range(4)]
        add(agent, *keys)
        other = ground.good[5]
        for name in (host, other):
            authorize(ground, name, keys[-1])
        ssh = ground.ssh(config={"IdentityFile": "none", "IdentitiesOnly": "no", "IdentityAgent": str(agent)})
        for name in (host, other):
            ground.fleet.change(name, files={"/var/log/sshd.log": ""})
            ssh.run(name, "true", b"", 10)
        tried = [ground.fleet.read(text, "/var/log/sshd.log").count("Failed publickey") for text in (host, other)]
        assert tried == [0, 0] or tried[1] == 0

    def test_too_many_are_told_in_the_hosts_words(self, ground: Ground, host: str, keygen: Keygen, agent: Path) -> None:
        keys = [keygen(f"key{number}") for number in range(8)]
        add(agent, *keys)
        config = {"IdentityFile": "none", "IdentitiesOnly": "no", "IdentityAgent": str(agent)}
        error = stop(ground, host, config)
        assert error.kind == "auth"
        assert "Too many authentication failures" in error.text
        assert "IdentitiesOnly" in error.hint


class TestPasswords:
    @pytest.fixture
    def asking(self, ground: Ground, host: str) -> Iterator[str]:
        setup = "echo root:open-sesame | chpasswd"
        options = ["PasswordAuthentication yes", "PermitRootLogin yes"]
        with ground.fleet.broken(host, setup=setup, sshd=options, files={"/root/.ssh/authorized_keys": ""}):
            yield host

    def test_the_right_one(self, ground: Ground, asking: str) -> None:
        for make in (ground.ssh, ground.openssh):
            result = make(password="open-sesame").run(asking, "id -un", b"", 10)
            assert result.out == b"root\n"

    def test_a_wrong_one(self, ground: Ground, asking: str) -> None:
        error = stop(ground, asking, {}, password="open-pepper")
        assert error.kind == "auth"
        assert "the password was wrong" in error.text
        assert "pepper" not in error.text + error.hint
        with pytest.raises(TransportError) as stopped:
            ground.openssh(password="open-pepper").run(asking, "true", b"", 5)
        assert stopped.value.kind == "auth"

    def test_a_key_and_a_password(self, ground: Ground, host: str) -> None:
        options = ["PasswordAuthentication yes", "PermitRootLogin yes", "AuthenticationMethods publickey,password"]
        with ground.fleet.broken(host, setup="echo root:open-sesame | chpasswd", sshd=options):
            assert ground.ssh(password="open-sesame").run(host, "id -un", b"", 10).out == b"root\n"
            error = stop(ground, host, {})
            assert (error.kind, "it accepts password" in error.text) == ("auth", True)

    def test_none_at_all(self, ground: Ground, asking: str) -> None:
        error = stop(ground, asking, {"IdentityFile": "none"})
        assert (error.kind, error.hint) == ("auth", "--identity FILE, or ssh-add")
        assert "it accepts publickey or password" in error.text
