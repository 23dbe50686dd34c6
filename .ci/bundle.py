"""Makes one archive that installs doctor where there is no internet: ``hatch run bundle``, or
``python .ci/bundle.py [OUT_FOLDER] [--machine M]... [--python X.Y]...``.

It holds the wheels of what ``.ci/lock.txt`` pins, for each machine and Python version, the wheel of pip, this
program's own, and ``install.sh``. pip downloads them from wherever its configuration looks, and holds each file against
the lock's hashes. The same lock, source and builder give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from packaging.markers import Marker
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
MACHINES = ("x86_64", "aarch64")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
LIBC_VERSIONS = ("2_17", "2_28", "2_34")
"""The versions of glibc that wheels are looked for, the oldest first: what runs on the most hosts is taken."""
PIP = ("pip", "26.3", ("f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13",))
"""Installs the rest; a host's own pip may be absent or too old."""
EPOCH = 1_580_601_600
"""The time of every file in the archive: 2020-02-02, as in wheels of hatchling."""
SBOM = runpy.run_path(str(ROOT / ".ci/sbom.py"))


class Pin(NamedTuple):
    """One library of the lock."""

    name: str
    version: str
    hashes: tuple[str, ...]
    marker: str = ""

    def applies(self, python: str, machine: str) -> bool:
        """Whether it is installed there: Linux, CPython."""
        environment = {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "platform_machine": machine,
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "extra": "",
        }
        return not self.marker or Marker(self.marker).evaluate(environment)

    @property
    def requirement(self) -> str:
        """The line for pip."""
        hashes = "".join(f" --hash=sha256:{content}" for content in self.hashes)
        return f"{self.name}=={self.version}{hashes}"


def pins(lock: str) -> list[Pin]:
    """What the lock pins. Raises: ValueError for a lock that is none."""
    return [
        Pin(
            component["name"],
            component["version"],
            tuple(entry["content"] for entry in component["hashes"]),
            next((entry["value"] for entry in component.get("properties", ())), ""),
        )
        for component in SBOM["pinned"](lock)
    ]


def pip(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs the pip of this interpreter; its output is kept."""
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def download(selected: Sequence[Pin], python: str, machine: str, folder: Path, more: Sequence[str] = ()) -> None:
    """Puts the wheels for one Python version and machine into ``folder``.

    What a project publishes as source alone is built, where that gives a wheel for every machine.
    Raises: SystemExit, with one line, for what has no wheel.
    """
    platforms = [f"--platform=manylinux_{libc}_{machine}" for libc in LIBC_VERSIONS]
    options = ["--quiet", "--no-deps", "--require-hashes", f"--dest={folder}", *more]
    for_wheels = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}", *platforms]
    if run_pip("download", selected, [*options, *for_wheels]).returncode == 0:
        return
    for pin in selected:
        done = run_pip("download", [pin], [*options, *for_wheels])
        if done.returncode != 0:
            build_from_source(pin, folder, more, done.stderr)


def run_pip(verb: str, selected: Iterable[Pin], options: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """``pip download`` or ``pip wheel`` of what is selected."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{pin.requirement}\n" for pin in selected))
        file.flush()
        return pip(verb, *options, "-r", file.name)


def build_from_source(pin: Pin, folder: Path, more: Sequence[str] = (), why: str = "") -> None:
    """Builds the wheel of a library that has none. Raises: SystemExit for one that is not pure Python."""
    with tempfile.TemporaryDirectory() as made:
        options = ["--quiet", "--no-deps", "--require-hashes", f"--wheel-dir={made}", *more]
        done = run_pip("wheel", [pin], options)
        wheels = [path for path in Path(made).glob("*.whl") if path.name.endswith("-none-any.whl")]
        if done.returncode != 0 or not wheels:
            reason = ((why or done.stderr).strip().splitlines() or ["it is not pure Python"])[-1]
            raise SystemExit(f"bundle: {pin.name} {pin.version}: no wheel for this machine and Python: {reason}")
        for path in wheels:
            (folder / path.name).write_bytes(path.read_bytes())


def own_wheel(folder: Path) -> Path:
    """This program's wheel. Raises: subprocess.CalledProcessError."""
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    argv = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(argv, check=True, env=environ, stdout=subprocess.DEVNULL)
    (path,) = folder.glob("cluster_doctor-*.whl")
    return path


def requirements(wheels: Iterable[Path], locked: Iterable[Pin]) -> str:
    """What ``install.sh`` installs: each version with its marker, and the hashes of the files in the archive."""
    hashes: dict[tuple[str, str], list[str]] = {}
    for path in wheels:
        name, version, _, _ = parse_wheel_filename(path.name)
        hashes.setdefault((str(name), str(version)), []).append(hashlib.sha256(path.read_bytes()).hexdigest())
    markers = {(pin.name, pin.version): pin.marker for pin in locked}
    lines = []
    for (name, version), contents in sorted(hashes.items()):
        marker = f" ; {markers[name, version]}" if markers.get((name, version)) else ""
        lines += [f"{name}=={version}{marker} \\", *(f"    --hash=sha256:{content} \\" for content in sorted(contents))]
        lines[-1] = lines[-1].removesuffix(" \\")
    return "\n".join(lines) + "\n"


def libc(wheels: Iterable[Path], machine: str) -> tuple[int, int]:
    """The oldest glibc on which each library has a wheel for the machine."""
    needed: dict[str, tuple[int, int]] = {}
    for path in wheels:
        name, _, _, tags = parse_wheel_filename(path.name)
        versions = [
            (int(match[1]), int(match[2]))
            for tag in tags
            if (match := re.fullmatch(rf"manylinux_(\d+)_(\d+)_{machine}", tag.platform))
        ]
        versions += [(2, 17) for tag in tags if tag.platform == f"manylinux2014_{machine}"]
        if versions:
            needed[str(name)] = max(needed.get(str(name), (2, 17)), min(versions))
    return max(needed.values(), default=(2, 17))


def archive(path: Path, top: str, files: Iterable[tuple[str, bytes, int]]) -> None:
    """An uncompressed archive (wheels are compressed) with nothing in it of who made it, or when."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data, mode in sorted(files):
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mode, info.mtime = len(data), mode, EPOCH
            tar.addfile(info, BytesIO(data))


def bundle_files(wheels: Sequence[Path], locked: Sequence[Pin], options: Any) -> Iterator[tuple[str, bytes, int]]:
    """Names, contents and modes of what is in the archive."""
    installed = [path for path in wheels if not path.name.startswith("pip-")]
    script = (ROOT / ".ci/install.sh").read_text("utf-8")
    minors = [int(python.partition(".")[2]) for python in options.python]
    values = {
        "@VERSION@": SBOM["version"](),
        "@PYTHONS@": " ".join(options.python),
        "@MACHINES@": " ".join(options.machine),
        "@OLDEST@": f"3.{min(minors)}",
        "@NEWEST@": f"3.{max(minors)}",
        "@PIP@": f"pip-{PIP[1]}-py3-none-any.whl",
        "@GLIBC@": ".".join(map(str, max(libc(wheels, machine) for machine in options.machine))),
    }
    listed = [("requirements.txt", requirements(installed, locked).encode(), 0o644)]
    listed += [(f"wheels/{path.name}", path.read_bytes(), 0o644) for path in wheels]
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data, _ in listed).encode()
    values["@SUMS@"] = hashlib.sha256(sums).hexdigest()
    for name, value in values.items():
        script = script.replace(name, value)
    yield "install.sh", script.encode(), 0o755
    yield "SHA256SUMS", sums, 0o644
    yield from listed


def main(argv: Sequence[str]) -> int:
    """Makes the archive, and says how large it is. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="bundle", description="Makes an archive that installs without a network.")
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "dist", help="the folder; default: dist")
    parser.add_argument("--machine", action="append", choices=MACHINES, help="default: all")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="default: all")
    options = parser.parse_args(argv)
    options.machine, options.python = options.machine or list(MACHINES), options.python or list(PYTHONS)
    locked = pins((ROOT / ".ci/lock.txt").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for machine in options.machine:
            for python in options.python:
                selected = [Pin(*PIP), *(pin for pin in locked if pin.applies(python, machine))]
                download(selected, python, machine, folder)
        own_wheel(folder)
        wheels = sorted(folder.glob("*.whl"))
        top = f"cluster-doctor-{SBOM['version']()}-offline"
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / f"{top}.tar"
        archive(path, top, bundle_files(wheels, locked, options))
    data = path.read_bytes()
    size = f"{len(data) / 1e6:.1f} MB, {len(wheels)} wheels"
    checksum = hashlib.sha256(data).hexdigest()
    path.with_name(f"{path.name}.sha256").write_text(f"{checksum}  {path.name}\n", "ascii")
    print(f"{path}: {size}, sha256 {checksum}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
