"""The image of doctor/docs/Dockerfile: built without a network, and run as the manifests run it.

Its base is made of the files of this machine's packages: Python, what that needs, a shell and tar.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.containers.podman import FIXED, ROOT, Podman, unavailable

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "it is there"),
    pytest.mark.skipif(not Path("/usr/bin/dpkg-query").exists(), reason="needs a Debian, whose packages are the base"),
]
PACKAGES = ("python3", "coreutils", "dash", "tar", "libc-bin")
KUBECTL = "#!/bin/sh\necho a kubectl\n"
RESTRICTED = ("--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges")
"""As the manifests have it: no right, and no file system that can be written to but /tmp."""
AS_A_USER = (*RESTRICTED, "--user=65532:65532", "--tmpfs=/tmp", "--shm-size=1g", "--env=HOME=/tmp")


def with_dependencies(names: Iterable[str]) -> list[str]:
    """Of packages that are installed here; of alternatives the first."""
    found, left = set(), [*names]
    while left:
        name = left.pop()
        words = ["dpkg-query", "-W", "-f", "${Depends},${Pre-Depends}", name]
        done = subprocess.run(words, capture_output=True, text=True)
        if name in found or done.returncode:
            continue
        found.add(name)
        left += [item.split()[0].partition(":")[0] for item in done.stdout.split(",") if item.strip()]
    return sorted(found)


def write_base(path: Path) -> None:
    """The root file system, as an archive."""
    listed = subprocess.run(["dpkg-query", "-L", *with_dependencies(PACKAGES)], capture_output=True, text=True)
    files = {Path(os.path.realpath(Path(name).parent), Path(name).name) for name in listed.stdout.splitlines() if name}
    with tarfile.open(path, "w") as archive:
        for name in ("bin", "sbin", "lib", "lib64"):
            if (link := Path("/", name)).is_symlink():
                archive.add(link, name)
        for name in ("tmp", "proc", "sys", "dev", "run", "root", "etc", "var"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        files |= {Path("/etc/passwd"), Path("/etc/group"), Path("/usr/bin/sh")}
        for file in sorted(files):
            if file.parent != Path("/") and (file.is_symlink() or file.is_file()):
                archive.add(file)


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    """With the image."""
    # podman refuses a folder whose path has more than 50 characters.
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp", ignore_cleanup_errors=True) as folder:
        made, context = Podman(Path(folder)), Path(folder, "dist")
        version = subprocess.run(["/usr/bin/python3", "--version"], capture_output=True, text=True).stdout.split()[1]
        options = ["--machine", platform.machine(), "--python", ".".join(version.split(".")[:2])]
        bundle = [sys.executable, ".ci/bundle.py", str(context), *options]
        subprocess.run(bundle, cwd=ROOT, check=True, capture_output=True, timeout=600)
        (context / "kubectl").write_text(KUBECTL)
        write_base(Path(folder, "base.tar"))
        imported = podman_says(made, "import", f"{folder}/base.tar", "localhost/base:1")
        assert imported.returncode == 0, imported.stderr
        file = str(ROOT / "doctor" / "docs" / "Dockerfile")
        words = ["--isolation=chroot", "--pull=never", "--build-arg", "BASE=localhost/base:1", "-f", file]
        built = podman_says(made, "build", *words, "-t", "localhost/doctor:1", str(context))
        assert built.returncode == 0, built.stdout + built.stderr
        yield made
        podman_says(made, "rmi", "--all", "--force")


def podman_says(podman: Podman, *words: str) -> subprocess.CompletedProcess[str]:
    """Where no packet leaves the process."""
    return subprocess.run(["unshare", "-n", *podman.argv(*words)], capture_output=True, text=True, timeout=600)


def run(podman: Podman, options: Iterable[str], *words: str) -> subprocess.CompletedProcess[str]:
    return podman_says(podman, "run", *FIXED, *options, "localhost/doctor:1", *words)


def test_an_ordinary_user_checks_with_a_read_only_root(podman: Podman) -> None:
    done = run(podman, AS_A_USER, "check", "--scope", "local", "--json", "--no-history")
    report = json.loads(done.stdout)
    failed = {item["check"] for item in report["outcomes"] if item["status"] == "failed"}
    unknown = [item["check"] for item in report["outcomes"] if item["unknown"] or item["crashed"]]
    assert (done.returncode, done.stderr, unknown) == (0, "", []), (failed, unknown, done.stderr)
    assert failed <= {"container-user-unnamed", "open-files-limit-low"}, failed  # of this container, and true of it
    assert sum(item["status"] == "passed" for item in report["outcomes"]) > 20


def test_a_fault_of_the_container_is_found(podman: Podman) -> None:
    """The default of /dev/shm."""
    options = [option for option in AS_A_USER if "shm" not in option]
    argv = ("check", "--scope", "local", "--json", "--no-history", "-s", "shm-docker-default", "--fail-on", "warning")
    done = run(podman, options, *argv)
    assert done.returncode == 10 and "64 MiB" in done.stdout, (done.stdout, done.stderr)


def test_without_arguments_it_helps_and_kubectl_is_beside_it(podman: Podman) -> None:
    done = run(podman, RESTRICTED)
    assert (done.returncode, done.stderr) == (0, "") and "Usage: doctor" in done.stdout, done.stderr
    done = run(podman, (*RESTRICTED, "--entrypoint=kubectl"))
    assert (done.returncode, done.stdout) == (0, "a kubectl\n"), done.stderr
    done = run(podman, (*RESTRICTED, "--entrypoint=sh"), "-c", "ls -d /tmp/* /opt/cluster-doctor/wheels 2>/dev/null")
    assert done.stdout == "", "something of the build is left"
