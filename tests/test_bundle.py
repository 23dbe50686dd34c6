"""The archive that installs where there is no internet: its requirements, its script, one that is really installed."""

from __future__ import annotations

import hashlib
import os
import platform
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BUNDLE: dict[str, Any] = runpy.run_path(str(ROOT / ".ci" / "bundle.py"))
Pin = BUNDLE["Pin"]
LOCKED = BUNDLE["pins"]((ROOT / ".ci" / "lock.txt").read_text("utf-8"))
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def installer(folder: Path, **values: str) -> Path:
    """The script as an archive would hold it."""
    text = (ROOT / ".ci" / "install.sh").read_text("utf-8")
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  wheels/{path.name}\n"
        for path in sorted((folder / "wheels").iterdir() if (folder / "wheels").exists() else ())
    )
    (folder / "SHA256SUMS").write_text(sums)
    (folder / "wheels").mkdir(exist_ok=True)
    defaults = {"VERSION": "1", "PYTHONS": PYTHON, "MACHINES": platform.machine(), "GLIBC": "2.17", "PIP": "pip.whl"}
    defaults["SUMS"] = hashlib.sha256(sums.encode()).hexdigest()
    for name, value in {**defaults, "OLDEST": PYTHON, "NEWEST": PYTHON, **values}.items():
        text = text.replace(f"@{name}@", value)
    (folder / "install.sh").write_text(text)
    return folder / "install.sh"


def install(script: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "HOME": str(script.parent), **environ}
    return subprocess.run(
        ["sh", str(script), *arguments], env=env, capture_output=True, text=True, timeout=300, check=False
    )


def stub(folder: Path, name: str, text: str) -> str:
    """A command of this name that only prints; the PATH that finds it first."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return f"{folder / 'bin'}:/usr/bin:/bin"


def test_each_python_gets_what_its_markers_say() -> None:
    old, new = ({pin.name for pin in LOCKED if pin.applies(python, "aarch64")} for python in ("3.10", "3.13"))
    assert {"tomli", "msgspec", "typing-extensions"} <= old
    assert "tomli" not in new
    assert "colorama" not in old | new  # Windows alone


def test_the_requirements_have_the_hash_of_each_file(tmp_path: Path) -> None:
    names = (
        "tomli-2.5.0-py3-none-any.whl",
        "psutil-7.2.2-cp36-abi3-manylinux2014_aarch64.whl",
        "cluster_doctor-1-py3-none-any.whl",
    )
    for name in names:
        (tmp_path / name).write_text(name)
    text = BUNDLE["requirements"](sorted(tmp_path.iterdir()), LOCKED)
    assert text.count("==") == text.count("--hash=") == 3
    assert "tomli==2.5.0 ; python_full_version < '3.11' \\\n    --hash=sha256:" in text
    assert hashlib.sha256(names[2].encode()).hexdigest() in text


def test_the_oldest_libc_is_that_of_the_wheels() -> None:
    wheels = [Path("a-1-cp310-cp310-manylinux_2_17_x86_64.manylinux_2_28_x86_64.whl"), Path("b-1-py3-none-any.whl")]
    assert BUNDLE["libc"](wheels, "x86_64") == (2, 17)
    wheels.append(Path("c-1-cp39-abi3-manylinux_2_34_x86_64.whl"))
    assert BUNDLE["libc"](wheels, "x86_64") == (2, 34)
    assert BUNDLE["libc"](wheels, "aarch64") == (2, 17)


def test_the_same_files_are_the_same_archive(tmp_path: Path) -> None:
    files = [("b", b"2", 0o644), ("a", b"1", 0o755)]
    for name, order in (("one.tar", files), ("two.tar", files[::-1])):
        BUNDLE["archive"](tmp_path / name, "top", order)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as tar:
        assert [(entry.name, entry.mode, entry.uid, entry.uname) for entry in tar] == [
            ("top/a", 0o755, 0, ""),
            ("top/b", 0o644, 0, ""),
        ]


class TestWhereItCannotInstall:
    """One line on stderr, exit code 1, and no folder."""

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("uname", "[ $1 = -s ] && echo Linux || echo riscv64", "this machine is riscv64; expected one of: "),
            ("uname", "echo Darwin", "this is Darwin; expected Linux"),
            ("python", "echo 3.9 CPython glibc 2.31", "is Python 3.9; expected "),
            ("python", f"echo {PYTHON} CPython", "expected CPython with glibc"),
            ("python", f"echo {PYTHON} PyPy glibc 2.31", "expected CPython with glibc"),
            ("python", "exit 3", "does not run; expected a Python "),
        ],
    )
    def test_machine_system_or_python(self, tmp_path: Path, name: str, text: str, message: str) -> None:
        path = stub(tmp_path, name, text)
        more = {"PYTHON": str(tmp_path / "bin" / "python")} if name == "python" else {}
        self.refused(install(installer(tmp_path), str(tmp_path / "new"), PATH=path, **more), message, tmp_path)

    def test_an_old_libc(self, tmp_path: Path) -> None:
        self.refused(
            install(installer(tmp_path, GLIBC="9.9"), str(tmp_path / "new")), "expected 9.9 or later", tmp_path
        )

    def test_no_python_in_the_path(self, tmp_path: Path) -> None:
        script = installer(tmp_path, PYTHONS="3.99", OLDEST="3.99", NEWEST="3.99")
        self.refused(install(script, str(tmp_path / "new"), PYTHON=""), "no Python 3.99 to 3.99 in PATH", tmp_path)

    def test_too_many_words_or_an_option(self, tmp_path: Path) -> None:
        script = installer(tmp_path)
        self.refused(install(script, "a", "b"), "2 arguments; expected at most one", tmp_path)
        self.refused(install(script, "--prefix=/x"), "--prefix=/x: no such option", tmp_path)

    def test_a_folder_with_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "file").write_text("")
        done = install(installer(tmp_path), str(tmp_path / "mine"))
        self.refused(done, "exists and is no virtual environment", tmp_path)
        assert os.listdir(tmp_path / "mine") == ["file"]

    @pytest.mark.parametrize("change", ["wheel", "another wheel", "list", "gone", "none"])
    def test_what_was_changed_does_not_run(self, tmp_path: Path, change: str) -> None:
        (tmp_path / "wheels" / "pip.whl").mkdir(parents=True)
        ran, program = tmp_path / "ran", tmp_path / "wheels" / "pip.whl"
        program.rmdir()
        with zipfile.ZipFile(program, "w") as archive:
            archive.writestr("pip/__main__.py", f"open({str(ran)!r}, 'w')")
        script = installer(tmp_path)
        if change == "wheel":
            with program.open("ab") as file:
                file.write(b"x")
        elif change == "another wheel":
            (tmp_path / "wheels" / "evil.whl").write_text("x")
        elif change == "list":
            (tmp_path / "SHA256SUMS").write_text(f"{hashlib.sha256(b'x').hexdigest()}  wheels/pip.whl\n")
            program.write_bytes(b"x")
        elif change == "gone":
            program.unlink()
        done = install(script, str(tmp_path / "new"))
        if change == "none":
            assert ran.exists()
            return
        self.refused(done, "is not what the archive was made with", tmp_path)
        assert not ran.exists()

    @staticmethod
    def refused(done: subprocess.CompletedProcess[str], message: str, folder: Path) -> None:
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("install.sh: ")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (folder / "new").exists()


def test_the_image_file_installs_from_the_archive_alone() -> None:
    """No line of it fetches anything: images cannot be had in every place where the tests run."""
    lines = (ROOT / "doctor" / "docs" / "Dockerfile").read_text("utf-8").splitlines()
    parts = {line.split()[0] for line in lines if line and not line.startswith(("#", " "))}
    assert parts == {"ARG", "FROM", "COPY", "RUN", "ENV", "ENTRYPOINT", "CMD"}
    text = "\n".join(line for line in lines if not line.startswith("#"))
    assert not any(word in text for word in ("curl", "wget", "pip ", "apt", "http", "ADD"))
    assert "cluster-doctor-*-offline.tar" in text


@pytest.mark.full
def test_what_is_published_as_source_alone_is_built_where_it_is_pure(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "only_source").mkdir(parents=True)
    (project / "only_source" / "__init__.py").write_text("")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "only-source"\nversion = "1.0"\nrequires-python = ">=3.10"\n'
    )
    index = tmp_path / "index"
    argv = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(index), str(project)]
    subprocess.run(argv, check=True, capture_output=True, timeout=100)
    (sdist,) = index.iterdir()
    (tmp_path / "wheels").mkdir()
    pin = Pin("only-source", "1.0", (hashlib.sha256(sdist.read_bytes()).hexdigest(),))
    more = ["--no-index", f"--find-links={index}", "--no-build-isolation"]
    BUNDLE["download"]([pin], "3.12", "aarch64", tmp_path / "wheels", more)
    assert os.listdir(tmp_path / "wheels") == ["only_source-1.0-py3-none-any.whl"]
    absent = Pin("only-source", "2.0", ("0" * 64,))
    with pytest.raises(SystemExit, match=r"bundle: only-source 2.0: no wheel for this machine and Python: "):
        BUNDLE["download"]([absent], "3.12", "aarch64", tmp_path / "wheels", more)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The archive for this machine and Python, made from PyPI twice."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    for folder in folders:
        options = ["--machine", platform.machine(), "--python", PYTHON]
        words = [sys.executable, ".ci/bundle.py", str(folder), *options]
        subprocess.run(words, cwd=ROOT, check=True, capture_output=True, timeout=600)
    return [next(folder.glob("*.tar")) for folder in folders]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_it_installs_without_a_network(archives: list[Path], tmp_path: Path) -> None:
    """Where no packet leaves the process; twice it is the same archive."""
    archive, again = archives
    checksum = next(archive.parent.glob("*.sha256"))
    subprocess.run(["sha256sum", "-c", checksum.name], cwd=checksum.parent, check=True, capture_output=True)
    assert archive.read_bytes() == again.read_bytes()
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", **({"filter": "data"} if sys.version_info >= (3, 12) else {}))
    (top,) = (tmp_path / "unpacked").iterdir()
    offline = ["unshare", "-n"] if os.geteuid() == 0 and shutil.which("unshare") else []
    env = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "HOME": str(tmp_path)}
    arguments = [*offline, "sh", str(top / "install.sh"), str(tmp_path / "venv")]
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    doctor = str(tmp_path / "venv" / "bin" / "doctor")
    listed = subprocess.run([doctor, "list"], env=env, capture_output=True, text=True, timeout=100, check=True)
    assert "host-unreachable" in listed.stdout
    names = {
        str(path.relative_to(tmp_path / "venv" / "share")) for path in (tmp_path / "venv" / "share").rglob("*doctor*")
    }
    assert {"man/man1/doctor.1", "bash-completion/completions/doctor", "zsh/site-functions/_doctor"} <= names
