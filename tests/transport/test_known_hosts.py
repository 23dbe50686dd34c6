"""known_hosts files mean what they mean to ssh."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from doctor.transport.ssh.known_hosts import (
    KnownHostLine,
    KnownHosts,
    KnownHostsFiles,
    hashed_name,
    host_entry_name,
    key_fingerprint,
    matches_patterns,
    verify_key,
)

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIB1yKP2YdF4z2W1Y0bYTq5Z0YzQ3b8sC0k7G4n0J0Cqk"
OTHER = "AAAAC3NzaC1lZDI1NTE5AAAAIKlr1p3D5PpJpXUoJ8Yk7l5j3qjD6oM0m9cQbP0b2o2W"


def verdict(text: str, name: str, key: str = KEY) -> str:
    return verify_key(KnownHosts(text).find(name), key)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (f"node1 ssh-ed25519 {KEY}", "node1", "known"),
        (f"node1 ssh-ed25519 {KEY} root@node1", "node1", "known"),
        (f"NODE1,10.0.0.1 ssh-ed25519 {KEY}", "Node1", "known"),
        (f"node1,10.0.0.1 ssh-ed25519 {KEY}", "10.0.0.1", "known"),
        (f"node1 ssh-ed25519 {KEY}", "node2", "unknown"),
        (f"node1 ssh-ed25519 {OTHER}", "node1", "changed"),
        (f"node1 ssh-ed25519 {OTHER}\nnode1 ssh-ed25519 {KEY}", "node1", "known"),
        (f"node1 ssh-rsa {OTHER}", "node1", "changed"),
        (f"node? ssh-ed25519 {KEY}", "node7", "known"),
        (f"node? ssh-ed25519 {KEY}", "node17", "unknown"),
        (f"*.example.com ssh-ed25519 {KEY}", "a.example.com", "known"),
        (f"*.example.com,!bad.example.com ssh-ed25519 {KEY}", "bad.example.com", "unknown"),
        (f"!bad,b* ssh-ed25519 {KEY}", "bad", "unknown"),
        (f"[node1]:2222 ssh-ed25519 {KEY}", "[node1]:2222", "known"),
        (f"[node1]:2222 ssh-ed25519 {KEY}", "node1", "unknown"),
        (f"[node*]:2222 ssh-ed25519 {KEY}", "[node1]:2222", "known"),
        (f"[n]ode1 ssh-ed25519 {KEY}", "node1", "unknown"),
        (f"@revoked * ssh-ed25519 {KEY}\nnode1 ssh-ed25519 {KEY}", "node1", "revoked"),
        (f"@revoked * ssh-ed25519 {OTHER}\nnode1 ssh-ed25519 {KEY}", "node1", "known"),
        (f"@cert-authority *.example.com ssh-ed25519 {KEY}", "a.example.com", "authority"),
        (f"@cert-authority * ssh-ed25519 {KEY}\nnode1 ssh-ed25519 {OTHER}", "node1", "changed"),
        (f"# node1 ssh-ed25519 {KEY}", "node1", "unknown"),
        ("", "node1", "unknown"),
    ],
)
def test_a_key_is_judged_as_ssh_would(text: str, name: str, expected: str) -> None:
    assert verdict(text, name) == expected


@pytest.mark.parametrize("nonsense", ["|1|nonsense", "node1", "|1|!!|!! ssh-ed25519 AAAA", "@revoked", "@ x y z", "\0"])
def test_lines_that_make_no_sense_harm_nothing(nonsense: str) -> None:
    assert verdict(f"{nonsense}\nnode1 ssh-ed25519 {KEY}", "node1") == "known"


def test_hashed_names_are_found() -> None:
    text = f"{hashed_name('node1')} ssh-ed25519 {KEY}\n{hashed_name('[node2]:2222')} ssh-ed25519 {KEY}"
    assert [verdict(text, name) for name in ("node1", "NODE1", "[node2]:2222", "node2")] == [
        "known",
        "known",
        "known",
        "unknown",
    ]


def test_a_line_tells_where_it_stands() -> None:
    (line,) = KnownHosts(f"\n# comment\nnode1 ssh-ed25519 {KEY}", "/etc/known").find("node1")
    assert line == KnownHostLine("ssh-ed25519", KEY, "", "/etc/known", 3)


def test_names_are_spelled_with_their_port() -> None:
    assert (host_entry_name("Node1", 22), host_entry_name("Node1", 2222)) == ("node1", "[node1]:2222")


@pytest.mark.parametrize(
    ("name", "patterns", "meant"),
    [
        ("a", ["*"], True),
        ("a", ["*", "!a"], False),
        ("a", ["!b"], False),
        ("a.b", ["a?b"], True),
        ("ab", ["a?b"], False),
        ("[a]:22", ["[a]:*"], True),
    ],
)
def test_patterns(name: str, patterns: list[str], meant: bool) -> None:
    assert matches_patterns(name, patterns) is meant


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen here")
def test_ssh_keygen_agrees(tmp_path: Path) -> None:
    """On fingerprints, on its own hashes, and on ours."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", key], check=True)
    kind, base64 = (tmp_path / "key.pub").read_text().split()[:2]
    path = tmp_path / "known_hosts"
    path.write_text(f"node1,[node2]:2222 {kind} {base64}\n{hashed_name('node3')} {kind} {base64}\n")
    subprocess.run(["ssh-keygen", "-H", "-f", path], check=True, capture_output=True)
    assert "node1" not in path.read_text()
    for name in ("node1", "[node2]:2222", "node3"):
        assert verdict(path.read_text(), name, base64) == "known"
        subprocess.run(["ssh-keygen", "-F", name, "-f", path], check=True, capture_output=True)
    output = subprocess.run(["ssh-keygen", "-lf", key], check=True, capture_output=True, text=True).stdout
    assert key_fingerprint(base64) == output.split()[1]


class TestRemembering:
    def test_a_new_file_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        path, files = tmp_path / "new" / "known_hosts", KnownHostsFiles([])
        files.remember(str(path), "node1", KnownHostLine("ssh-ed25519", KEY), hash_name=False)
        assert path.read_text() == f"node1 ssh-ed25519 {KEY}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    def test_it_goes_on_a_line_of_its_own(self, tmp_path: Path) -> None:
        path, files = tmp_path / "known_hosts", KnownHostsFiles([])
        path.write_text(f"node0 ssh-ed25519 {KEY}")
        path.chmod(0o644)
        files.remember(str(path), "node1", KnownHostLine("ssh-ed25519", KEY), hash_name=False)
        assert path.read_text().splitlines() == [f"node{n} ssh-ed25519 {KEY}" for n in (0, 1)]
        assert stat.S_IMODE(path.stat().st_mode) == 0o644

    def test_it_is_known_at_once(self, tmp_path: Path) -> None:
        path, files = str(tmp_path / "known_hosts"), KnownHostsFiles([])
        assert verify_key(files.find([path], "node1"), KEY) == "unknown"
        files.remember(path, "node1", KnownHostLine("ssh-ed25519", KEY), hash_name=True)
        assert verify_key(files.find([path], "node1"), KEY) == "known"
        assert verify_key(KnownHostsFiles([]).find([path], "node1"), KEY) == "known"
        assert "node1" not in Path(path).read_text()


class TestFiles:
    def test_each_is_read_once(self, tmp_path: Path) -> None:
        path, files = tmp_path / "known_hosts", KnownHostsFiles([])
        path.write_text(f"node1 ssh-ed25519 {KEY}\n")
        assert verify_key(files.find([str(path)], "node1"), KEY) == "known"
        path.unlink()
        assert verify_key(files.find([str(path)], "node1"), KEY) == "known"

    def test_several_are_taken_together(self, tmp_path: Path) -> None:
        mine, system = tmp_path / "mine", tmp_path / "system"
        mine.write_text(f"node1 ssh-ed25519 {KEY}\n")
        system.write_text(f"@revoked node1 ssh-ed25519 {KEY}\n")
        assert (
            verify_key(KnownHostsFiles([]).find([str(mine), str(tmp_path / "none"), str(system)], "node1"), KEY)
            == "revoked"
        )

    def test_one_that_cannot_be_read_is_told(self, tmp_path: Path) -> None:
        warnings: list[str] = []
        assert KnownHostsFiles(warnings).find([str(tmp_path)], "node1") == []
        assert warnings == [f"{tmp_path} could not be read: {os.strerror(21)}"]
