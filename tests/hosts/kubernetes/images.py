"""Images for the pods of a test cluster, made of this machine's own files: nothing is pulled.

- ``localhost/machine:1``: nearly empty. Its pods mount the machine's /usr, with its Python, read-only.
- ``localhost/no-python:1``: busybox alone, with its shell.
- ``localhost/pause:1``: one program, no shell.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

_USERS = "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nann:x:1000:1000::/tmp:/bin/sh\n"
_FILES = {
    "etc/passwd": _USERS,
    "etc/group": "root:x:0:\nann:x:1000:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\n",
}


def write_images(folder: Path, pause: Path) -> None:
    """Writes one archive for each image into ``folder``."""
    folder.mkdir()
    _write(folder, "pause", lambda layer: _add_file(layer, "pause", pause.read_bytes(), 0o755), ("/pause",))
    _write(folder, "machine", _machine)
    _write(folder, "no-python", _busybox)


def _machine(layer: tarfile.TarFile) -> None:
    for name in ("usr", "tmp", "proc", "sys", "dev", "run", "root", "etc", "var", "var/tmp", "run/sshd", "opt"):
        _add_folder(layer, name)
    for name in ("bin", "sbin", "lib", "lib64"):
        _add_link(layer, name, f"usr/{name}")
    for name, text in _FILES.items():
        _add_file(layer, name, text.encode(), 0o644)


def _busybox(layer: tarfile.TarFile) -> None:
    for name in ("tmp", "proc", "sys", "dev", "etc", "bin"):
        _add_folder(layer, name)
    libraries = re.findall(r"(/lib\S+)", subprocess.run(["ldd", "/bin/busybox"], capture_output=True, text=True).stdout)
    for path in ("/bin/busybox", *libraries):
        _add_file(layer, path.lstrip("/"), Path(path).read_bytes(), 0o755)
    for name in ("sh", "sleep", "cat", "id", "echo", "nsenter"):
        _add_link(layer, f"bin/{name}", "busybox")


def _write(
    folder: Path, name: str, fill: Callable[[tarfile.TarFile], None], entrypoint: tuple[str, ...] = ("sh",)
) -> None:
    """An archive as ``docker save`` writes it, of one layer."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as layer:
        fill(layer)
    data = packed.getvalue()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "Entrypoint": entrypoint},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}"]},
        }
    ).encode()
    manifest = [{"Config": "config.json", "RepoTags": [f"localhost/{name}:1"], "Layers": ["layer.tar"]}]
    with tarfile.open(folder / f"{name}.tar", "w") as archive:
        _add_file(archive, "config.json", config, 0o644)
        _add_file(archive, "layer.tar", data, 0o644)
        _add_file(archive, "manifest.json", json.dumps(manifest).encode(), 0o644)


def _add_file(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    item = tarfile.TarInfo(name)
    item.size, item.mode = len(data), mode
    archive.addfile(item, io.BytesIO(data))


def _add_folder(archive: tarfile.TarFile, name: str) -> None:
    item = tarfile.TarInfo(name)
    item.type, item.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    archive.addfile(item)


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    item = tarfile.TarInfo(name)
    item.type, item.linkname = tarfile.SYMTYPE, target
    archive.addfile(item)
