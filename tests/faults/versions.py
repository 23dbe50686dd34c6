"""Versions and the job's Python: a host that differs from the others, or in which torch does not load.

torch and torch_npu are a few lines of Python here, which fail as the real ones do (`tests.hosts.npu.job_python`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.faults import Prepared, Row
from tests.hosts.npu import job_python

PYTHON = "/opt/job/bin/python"
DRIVER = "/usr/local/Ascend/driver/version.info"
FIRMWARE = "/usr/local/Ascend/firmware/version.info"
NOTE = "/etc/ascend_install.info"

TORCH, TORCH_NPU, CANN = "2.5.1", "2.5.1", "8.1.RC1"
TOOLKIT = "/usr/local/Ascend/ascend-toolkit"
INFO = f"{TOOLKIT}/latest/*-linux/ascend_toolkit_install.info"
SITE = "/opt/job/lib/python*/site-packages"


def job(fleet: Any, folder: Any, healthy: bool) -> Prepared:
    """A virtual environment with torch, torch_npu and numpy on every host, and a login that sources CANN's script."""
    created = job_python(f"{TORCH}+cpu", TORCH_NPU, cann=CANN, numpy="1.26.4")
    created["files"]["/root/.bashrc"] = f". {TOOLKIT}/set_env.sh\n"
    for host in fleet.hosts:
        fleet.change(host, **created)
    return Prepared(["--python", PYTHON])


def job_row(check: str, fault: str, also: Sequence[str] = (), **values: Any) -> Row:
    return Row(check, fault, values=values, prepare=job, also=also)


def renamed(before: str, after: str) -> str:
    """An installed distribution gets another version."""
    return f"cd {SITE}; mv {before}.dist-info {after}.dist-info"


def edited(check: str, path: str, pattern: str, also: Sequence[str] = (), **values: Any) -> Row:
    """A file of the vendor's that sed has been at."""
    return Row(check, f"sed -i '{pattern}' {path}", values=values, also=also)


def torch_variable(fleet: Any, folder: Any, healthy: bool) -> Prepared:
    """A job that sets a variable of torch 2.2 and later, with torch 2.5 and with torch 2.1."""
    prepared = job(fleet, folder, True)
    if not healthy:
        old = job_python("2.1.0+cpu", "2.1.0", cann=CANN, numpy="1.26.4")
        for host in fleet.hosts:
            fleet.renew(host)
            fleet.change(host, **old)
    return Prepared(prepared.arguments, {"TORCH_NCCL_BLOCKING_WAIT": "1"})


ROWS: list[Row] = [
    Row(
        "launch-variable-not-read",
        "",
        prepare=torch_variable,
        blamed=(0, 1, 2, 3),
        values={"variable": "TORCH_NCCL_BLOCKING_WAIT", "replacement": "NCCL_BLOCKING_WAIT"},
    ),
    edited(
        "driver-version-differs",
        DRIVER,
        "s/^Version=.*/Version=23.0.5/",
        also=("cann-driver-mismatch",),
        observed="23.0.5",
        count=3,
        total=4,
    ),
    Row(
        "cann-driver-mismatch",
        f"sed -i 's/^Version=.*/Version=23.0.5/' {DRIVER}",
        values={"driver": "23.0.5", "cann": CANN, "expected": "24.1"},
        also=("driver-version-differs",),
    ),
    edited("firmware-version-differs", FIRMWARE, "s/^Version=.*/Version=7.8.0.7.220/", observed="7.8.0.7.220"),
    edited(
        "firmware-mismatch",
        FIRMWARE,
        "s/^Version=.*/Version=1.76.22.3.220/",
        observed="1.76.22.3.220",
        also=("firmware-version-differs",),
    ),
    Row(
        "npu-firmware-incompatible",
        "echo NOK >/run/npu/compatibility",
        values={"cards": [0, 1, 2, 3, 4, 5, 6, 7], "observed": "NOK"},
    ),
    edited("driver-install-incomplete", NOTE, "/Driver_Install_Status/d", observed="no status", expected="complete"),
    edited("driver-install-incomplete", NOTE, "s/Status=complete/Status=failed/", observed="failed"),
    edited("cann-version-differs", INFO, "s/^version=.*/version=8.0.0/", observed="8.0.0", expected=CANN, count=3),
    replace(
        job_row("cann-version-differs", f"sed -i 's/^version=.*/version=8.2.RC1/' {INFO}", observed="8.2.RC1"),
        also=("torch-npu-cann-mismatch",),
    ),
    job_row("cann-missing", f"rm -r {TOOLKIT}", layers=[f"torch_npu {TORCH_NPU}"], also=("torch-npu-cannot-load",)),
    job_row(
        "torch-version-differs",
        renamed(f"torch-{TORCH}+cpu", "torch-2.6.0"),
        package="torch",
        also=("torch-npu-mismatch",),
        observed="2.6.0",
        expected=f"{TORCH}+cpu",
    ),
    job_row(
        "torch-version-differs",
        f"rm -r {SITE}/torch_npu-{TORCH_NPU}.dist-info",
        package="torch_npu",
        observed="not installed",
    ),
    job_row(
        "torch-npu-mismatch",
        renamed(f"torch-{TORCH}+cpu", "torch-2.8.0"),
        observed="2.8.0",
        expected=TORCH,
        python=PYTHON,
    ),
    job_row(
        "torch-npu-cann-mismatch",
        f"sed -i 's/^version=.*/version=8.2.RC1/' {INFO}",
        observed="8.2.RC1",
        expected=CANN,
        framework="torch_npu",
        version=TORCH_NPU,
    ),
    job_row("torch-npu-cannot-load", f"rm -r {TOOLKIT}", library="libhccl.so", set_env=""),
    job_row(
        "torch-npu-cannot-load",
        f"rm {TOOLKIT}/latest/lib64/libhccl.so",
        library="libhccl.so",
        set_env=f"{TOOLKIT}/set_env.sh",
    ),
    job_row(
        "torch-npu-cannot-load",
        "rm /usr/local/Ascend/driver/lib64/driver/libascend_hal.so",
        library="libascend_hal.so",
    ),
    job_row("cann-env-not-set", "rm /root/.bashrc", set_env=f"{TOOLKIT}/set_env.sh", library="libhccl.so"),
    job_row(
        "torch-import-fails",
        f"echo 'import yaml_is_missing' >>$(echo {SITE})/torch_npu/__init__.py",
        observed="ModuleNotFoundError: No module named 'yaml_is_missing'",
    ),
    job_row(
        "torch-import-fails",
        f"echo 'os.kill(os.getpid(), 11)' >>$(echo {SITE})/torch_npu/__init__.py",
        observed="killed by signal 11",
    ),
    job_row("numpy-too-new", renamed("numpy-1.26.4", "numpy-2.0.2"), observed="2.0.2"),
    job_row(
        "python-version-differs",
        f"rm {PYTHON}; cat >{PYTHON} <<'END'\n"
        "#!/bin/sh\n"
        "exec python3 -c 'import sys; sys.version_info = (3, 9, 1); exec(sys.argv[2])' \"$@\"\n"
        "END\n"
        f"chmod 755 {PYTHON}",
        observed="3.9",
    ),
    job_row("job-python-missing", f"rm {PYTHON}", expected=PYTHON),
]
