"""Host keys of real sshd's: known, new, changed, revoked, certified."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from doctor.transport import TransportError

if TYPE_CHECKING:
    from tests.transport.conftest import Ground

pytestmark = pytest.mark.hosts


@pytest.fixture
def known_hosts(tmp_path: Path) -> Path:
    return tmp_path / "known hosts" / "known_hosts"


@pytest.fixture
def host(ground: Ground) -> str:
    return ground.good[0]


@pytest.fixture
def address(ground: Ground, host: str) -> str:
    return ground.fleet.addresses[host]


def reaches(ground: Ground, host: str, path: Path, lines: str = "", **options: object) -> bool:
    ssh = ground.ssh(lines, {"UserKnownHostsFile": f'"{path}"'}, **options)
    return ssh.run(host, "hostname", b"", 10).out == f"{host}\n".encode()


def stop(ground: Ground, host: str, path: Path, lines: str = "", **options: object) -> TransportError:
    with pytest.raises(TransportError) as error:
        reaches(ground, host, path, lines, **options)
    return error.value


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


class TestAnUnknownKey:
    def test_is_refused_and_the_command_that_adds_it_works(
        self, ground: Ground, host: str, address: str, known_hosts: Path
    ) -> None:
        known_hosts.parent.mkdir()
        error = stop(ground, host, known_hosts)
        assert error.kind == "key-unknown"
        assert error.hint == f"ssh-keyscan -p 22 -t ed25519 {address} >> '{known_hosts}'"
        (ground.folder / "key.pub").write_text(ground.known_key(host))
        completed = subprocess.run(["ssh-keygen", "-lf", ground.folder / "key.pub"], capture_output=True, text=True)
        assert f"ssh-ed25519 {completed.stdout.split()[1]} " in error.text
        subprocess.run(["sh", "-c", error.hint], check=True, capture_output=True)
        assert reaches(ground, host, known_hosts)

    @pytest.mark.parametrize("lines", [" HostKeyAlias the-one\n", " ProxyJump {0}\n", " ProxyCommand nc %h %p\n"])
    def test_where_ssh_keyscan_does_not_get_the_key_itself_is_told(
        self, ground: Ground, host: str, known_hosts: Path, lines: str
    ) -> None:
        if "nc " in lines:
            lines = f" ProxyCommand ssh -F {ground.folder}/ssh_config -W %h:%p {ground.good[1]}\n"
        known_hosts.parent.mkdir()
        gate = f"Host {ground.good[1]}\n UserKnownHostsFile {ground.fleet.known_hosts}\n"
        lines = f"{gate}Host {host}\n{lines.format(ground.good[1])}"
        error = stop(ground, host, known_hosts, lines)
        assert error.kind == "key-unknown"
        assert error.hint.startswith("echo '")
        subprocess.run(["sh", "-c", error.hint], check=True)
        assert reaches(ground, host, known_hosts, lines)

    def test_where_new_keys_go_nowhere_the_option_is_told(self, ground: Ground, host: str) -> None:
        assert stop(ground, host, Path("/dev/null")).hint == "--accept-new"

    def test_is_accepted_and_remembered_when_that_is_asked_for(
        self, ground: Ground, address: str, host: str, known_hosts: Path
    ) -> None:
        assert reaches(ground, host, known_hosts, accept_new=True)
        assert known_hosts.read_text() == f"{address} {ground.known_key(host)}\n"
        assert reaches(ground, host, known_hosts)

    def test_is_remembered_hashed_where_that_is_configured(
        self, ground: Ground, host: str, address: str, known_hosts: Path
    ) -> None:
        assert reaches(ground, host, known_hosts, "HashKnownHosts yes\n", accept_new=True)
        assert known_hosts.read_text().startswith("|1|")
        subprocess.run(["ssh-keygen", "-F", address, "-f", known_hosts], check=True, capture_output=True)
        assert reaches(ground, host, known_hosts)

    def test_many_at_once_are_remembered_once_each(self, ground: Ground, known_hosts: Path) -> None:
        ssh = ground.ssh(config={"UserKnownHostsFile": f'"{known_hosts}"'}, accept_new=True)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda host: ssh.run(host, "true", b"", 10), ground.good))
        names = sorted(line.split()[0] for line in known_hosts.read_text().splitlines())
        assert names == sorted(ground.fleet.addresses[host] for host in ground.good)

    def test_that_cannot_be_remembered_is_told(self, ground: Ground, host: str, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        ssh = ground.ssh(config={"UserKnownHostsFile": str(tmp_path / "file" / "known")}, accept_new=True)
        assert ssh.run(host, "true", b"", 10).code == 0
        assert "could not be added" in ssh.warnings[-1]

    def test_is_not_accepted_because_the_configuration_says_so(
        self, ground: Ground, host: str, known_hosts: Path
    ) -> None:
        assert stop(ground, host, known_hosts, "StrictHostKeyChecking no\n").kind == "key-unknown"


class TestAKnownKey:
    @pytest.mark.parametrize("names", ["{0}", "x,{0}", "10.78.*", "*,!x"])
    def test_by_name_or_pattern(self, ground: Ground, host: str, address: str, known_hosts: Path, names: str) -> None:
        assert reaches(ground, host, write(known_hosts, f"{names.format(address)} {ground.known_key(host)}\n"))

    def test_hashed(self, ground: Ground, host: str, address: str, known_hosts: Path) -> None:
        write(known_hosts, f"{address} {ground.known_key(host)}\n")
        subprocess.run(["ssh-keygen", "-H", "-f", known_hosts], check=True, capture_output=True)
        assert address not in known_hosts.read_text()
        assert reaches(ground, host, known_hosts)

    def test_by_its_alias(self, ground: Ground, host: str, known_hosts: Path) -> None:
        write(known_hosts, f"the-one {ground.known_key(host)}\n")
        assert reaches(ground, host, known_hosts, f"Host {host}\n HostKeyAlias The-One\n")

    def test_in_the_second_of_two_files(self, ground: Ground, host: str, address: str, known_hosts: Path) -> None:
        write(known_hosts, f"{address} {ground.known_key(host)}\n")
        ssh = ground.ssh(config={"UserKnownHostsFile": f'/no/such/file "{known_hosts}"'})
        assert ssh.run(host, "true", b"", 10).code == 0

    def test_in_the_file_for_all_users(self, ground: Ground, host: str, address: str, known_hosts: Path) -> None:
        write(known_hosts, f"{address} {ground.known_key(host)}\n")
        ssh = ground.ssh(config={"UserKnownHostsFile": "none", "GlobalKnownHostsFile": f'"{known_hosts}"'})
        assert ssh.run(host, "true", b"", 10).code == 0

    def test_of_another_type_than_the_host_would_show_first(self, ground: Ground, known_hosts: Path) -> None:
        """The host has two keys; the one that is known is asked for."""
        host = ground.good[7]
        make = "rm -f /etc/ssh/ssh_host_ecdsa_key*; ssh-keygen -q -t ecdsa -N '' -f /etc/ssh/ssh_host_ecdsa_key"
        with ground.fleet.broken(host, setup=make, sshd=["HostKey /etc/ssh/ssh_host_ecdsa_key"]):
            key = ground.fleet.read(host, "/etc/ssh/ssh_host_ecdsa_key.pub")
            assert reaches(ground, host, write(known_hosts, f"{ground.fleet.addresses[host]} {key}"))

    def test_at_port_22_is_known_at_other_ports(self, ground: Ground, known_hosts: Path) -> None:
        host = ground.good[7]
        with ground.fleet.broken(host, sshd=["Port 2222"]):
            write(known_hosts, f"{ground.fleet.addresses[host]} {ground.known_key(host)}\n")
            assert reaches(ground, host, known_hosts, f"Host {host}\n Port 2222\n")


class TestAKeyThatMustNotBeTrusted:
    def test_revoked(self, ground: Ground, host: str, address: str, known_hosts: Path) -> None:
        key = ground.known_key(host)
        error = stop(ground, host, write(known_hosts, f"{address} {key}\n@revoked * {key}\n"), accept_new=True)
        assert error.kind == "key-revoked"
        assert f"is revoked by {known_hosts} line 2" in error.text

    def test_on_a_list_of_revoked_keys(self, ground: Ground, host: str, known_hosts: Path, tmp_path: Path) -> None:
        revoked = write(tmp_path / "revoked", ground.known_key(host))
        lines = f"RevokedHostKeys {revoked}\n"
        assert stop(ground, host, ground.fleet.known_hosts, lines).kind == "key-revoked"

    def test_with_a_list_that_cannot_be_read(self, ground: Ground, host: str, tmp_path: Path) -> None:
        for path, kind in ((tmp_path / "none", "error"), (write(tmp_path / "krl", "SSHKRL\n\0"), "unsupported")):
            assert stop(ground, host, ground.fleet.known_hosts, f"RevokedHostKeys {path}\n").kind == kind

    def test_changed_even_where_new_ones_are_accepted(
        self, ground: Ground, host: str, address: str, known_hosts: Path
    ) -> None:
        write(known_hosts, f"{address} {ground.known_key(ground.good[1])}\n")
        error = stop(ground, host, known_hosts, accept_new=True)
        assert error.kind == "key-changed"
        assert f"{known_hosts} line 1 has ssh-ed25519 SHA256:" in error.text
        subprocess.run(["sh", "-c", error.hint], check=True, capture_output=True)
        assert stop(ground, host, known_hosts).kind == "key-unknown"


def test_a_host_certificate_is_for_the_other_transport(
    ground: Ground, host: str, address: str, known_hosts: Path, tmp_path: Path
) -> None:
    host, ca = ground.good[7], tmp_path / "ca"
    address = ground.fleet.addresses[host]
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ca], check=True)
    (tmp_path / "host.pub").write_text(ground.known_key(host))
    subprocess.run(["ssh-keygen", "-q", "-s", ca, "-I", "h", "-h", "-n", address, tmp_path / "host.pub"], check=True)
    certificate = (tmp_path / "host-cert.pub").read_text()
    write(known_hosts, f"@cert-authority * {Path(f'{ca}.pub').read_text()}")
    files = {"/etc/ssh/certificate.pub": certificate}
    with ground.fleet.broken(host, files=files, sshd=["HostCertificate /etc/ssh/certificate.pub"]):
        error = stop(ground, host, known_hosts, accept_new=True)
        assert (error.kind, error.hint) == ("unsupported", "--transport openssh")
        openssh = ground.openssh(config={"UserKnownHostsFile": f'"{known_hosts}"'})
        assert openssh.run(host, "hostname", b"", 10).out == f"{host}\n".encode()
