"""Real containers of podman, whose file system is made of folders of this machine: no image is fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHOUT_HYBRID = 'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
"""crun refuses a machine whose control groups are of both versions: in a mount namespace they are of one."""

FIXED = ["--rm", "--cgroups=disabled", "--network=none", "--ulimit", "nofile=1024:4096", "--ulimit", "nproc=4096"]
"""Of each container: no limit beyond those of this process, which a machine may forbid."""


def unavailable() -> str:
    """Why there can be no container here; empty where there can."""
    if os.geteuid() != 0:
        return "needs root"
    return "" if shutil.which("podman") and shutil.which("crun") else "needs podman and crun"


class Podman:
    """Starts containers; the state of all lies in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rootfs = folder, folder / "rootfs"
        for name in ("usr", "proc", "sys", "dev", "tmp", "run", "root", "etc", "var", "opt"):
            (self.rootfs / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self.rootfs / name).symlink_to(f"usr/{name}")
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
            if Path("/etc", name).exists():
                shutil.copy(f"/etc/{name}", self.rootfs / "etc" / name)
        if Path("/etc/alternatives").is_dir():
            shutil.copytree("/etc/alternatives", self.rootfs / "etc/alternatives", symlinks=True)

    def argv(self, *arguments: str) -> list[str]:
        """podman with these words."""
        places = ["--root", f"{self.folder}/store", "--runroot", f"{self.folder}/run", "--tmpdir", f"{self.folder}/tmp"]
        ways = ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", "crun"]
        return ["unshare", "-m", "sh", "-c", WITHOUT_HYBRID, "sh", "podman", *places, *ways, *arguments]

    def start(self, options: Sequence[str], command: Sequence[str]) -> list[str]:
        """The command that runs another in a new container, with the interpreter of the tests and what it imports."""
        import doctor

        visible = {sys.prefix, sys.base_prefix, str(ROOT), str(Path(doctor.__file__).parents[1]), *sys.path}
        folders = sorted({path for path in visible if Path(path).is_dir() and not path.startswith("/usr/")})
        mounts = [word for path in ["/usr", *folders] for word in ("-v", f"{path}:{path}:ro")]
        return self.argv("run", *FIXED, *mounts, *options, "--rootfs", str(self.rootfs), *command)

    def run(self, options: Sequence[str], command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """A command in a container of its own."""
        return subprocess.run(self.start(options, command), capture_output=True, text=True, timeout=170)
