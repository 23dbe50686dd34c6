"""The job's interpreter: its packages, and what its import of torch raised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Output, PerHost, Unreadable
from doctor.facts.python_env import (
    LIST_PACKAGES,
    JobPython,
    PythonEnv,
    TorchImport,
    find_python,
    import_cause,
    list_packages,
    missing_library,
    try_import,
)
from tests.facts.answers import answered, learned

HCCL = """\
Traceback (most recent call last):
  File "/opt/job/torch/__init__.py", line 2475, in _import_device_backends
    entrypoint()
ImportError: libhccl.so: cannot open shared object file: No such file or directory. Please check that the cann \
package is installed. Please run 'source set_env.sh' in the CANN installation path.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "<string>", line 4, in <module>
RuntimeError: Failed to load the backend extension: torch_npu. You can disable extension auto-loading with \
TORCH_DEVICE_BACKEND_AUTOLOAD=0.
"""
HAL = "ImportError: libascend_hal.so: cannot open shared object file: No such file or directory\n"
YAML = "ModuleNotFoundError: No module named 'yaml'\n"
GOOD = {"code": 0, "out": "doctor-imported 2.7.1\n", "err": ""}


def tried(*tries: dict[str, Any], set_env: str = "", path: str = "/usr/bin/python3", requested: str = "") -> Any:
    return answered(TorchImport, {"asked": requested, "path": path, "set_env": set_env, "tries": list(tries)})


def raised(err: str, code: int = 1) -> dict[str, Any]:
    return {"code": code, "out": "", "err": err}


def test_an_import_that_goes_well() -> None:
    assert tried(GOOD) == TorchImport(error="", set_env="", error_with_set_env="")


def test_the_root_of_a_failed_import_is_what_is_told() -> None:
    value = tried(raised(HCCL))
    assert value.error == value.error_with_set_env
    assert value.error.startswith("ImportError: libhccl.so: cannot open")
    assert missing_library(value.error) == "libhccl.so"


def test_an_import_that_goes_well_once_cann_is_sourced() -> None:
    value = tried(raised(HCCL), GOOD, set_env="/usr/local/Ascend/cann/set_env.sh")
    assert value.error and not value.error_with_set_env
    assert value.set_env == "/usr/local/Ascend/cann/set_env.sh"


def test_an_interpreter_that_dies_without_a_word() -> None:
    assert tried(raised("", -11)).error == "killed by signal 11"
    assert tried(raised("free(): invalid pointer\n", -6)).error == "free(): invalid pointer (killed by signal 6)"


def test_what_is_no_answer() -> None:
    assert type(tried({"code": 0, "out": "doctor-no-torch\n", "err": ""})) is Absent
    assert isinstance(tried({"code": 0, "out": "", "err": ""}), Unreadable)
    assert isinstance(tried({"timeout": 40}), Unreadable)
    assert type(tried(path="")) is Absent
    assert tried(path="", requested="/opt/x").root_cause == "job-python-missing"


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        ("", ""),
        (HCCL.splitlines()[3], "cann"),
        ("ImportError: libascendcl.so: cannot open shared object file: No such file or directory.", "cann"),
        ("Exception: ASCEND_HOME_PATH : /x does not exist. Please run 'source set_env.sh'", "cann"),
        ("Exception: ASCEND_OPP_PATH environment variable is not set. Please check ...", "cann"),
        (HAL, "driver"),
        (YAML, "other"),
        ("ImportError: libgomp.so.1: cannot open shared object file: No such file or directory", "other"),
        ("killed by signal 11", "other"),
    ],
)
def test_whose_part_is_missing(error: str, whose: str) -> None:
    assert import_cause(error) == whose


def python_answer(**more: Any) -> dict[str, Any]:
    return {"asked": "", "path": "/usr/bin/python3", "version": "3.10.12", "packages": {}, "torch": False, **more}


def test_the_packages() -> None:
    value = answered(
        PythonEnv, python_answer(packages={"torch_npu": ["2.7.1.post4"], "torch": ["2.7.1+cpu"]}, torch=True)
    )
    assert value == PythonEnv(
        path="/usr/bin/python3",
        version="3.10.12",
        packages={"torch": "2.7.1+cpu", "torch_npu": "2.7.1.post4"},
        finds_torch=True,
    )
    assert value.minor_version == "3.10"


def test_a_package_that_is_there_twice_is_unread() -> None:
    value = answered(PythonEnv, python_answer(packages={"torch": ["2.6.0", "2.7.1"]}))
    assert value.packages == {}
    assert value.unread == {"torch": "several versions are installed: 2.6.0, 2.7.1"}


def test_a_command_for_pip_is_not_refused_by_the_python_of_a_distribution(tmp_path: Path) -> None:
    """PEP 668: beside its modules stands EXTERNALLY-MANAGED; a virtual environment of it is the user's."""
    own, managed = answered(PythonEnv, python_answer()), answered(PythonEnv, python_answer(managed=True))
    assert (own.typed, managed.typed) == ("/usr/bin/python3", "env PIP_BREAK_SYSTEM_PACKAGES=1 /usr/bin/python3")
    folder = tmp_path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    folder.mkdir(parents=True)
    (folder / "EXTERNALLY-MANAGED").touch()
    for base, is_managed in ((sys.prefix, True), ("/elsewhere", False)):
        program = f"import os, sys; sys.base_prefix, os.__file__ = {(base, str(folder / 'os.py'))}\n{LIST_PACKAGES}"
        run = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
        assert ("doctor managed" in run.stdout) is is_managed


def test_torch_is_tried_only_where_there_is_one() -> None:
    present, removed = answered(PythonEnv, python_answer(torch=True)), answered(PythonEnv, python_answer())
    assert TorchImport.plan({PythonEnv: PerHost({"a": present, "b": removed})}) == {"a": True}


def test_an_interpreter_that_is_not_there_or_does_not_run() -> None:
    assert type(answered(PythonEnv, {"asked": "", "path": ""})) is Absent
    assert answered(PythonEnv, {"asked": "/opt/x", "path": ""}).root_cause == "job-python-missing"
    assert isinstance(answered(PythonEnv, {"asked": "", "path": "/p", "error": "no"}), Unreadable)


def test_the_functions_find_this_interpreter(tmp_path: Any) -> None:
    (tmp_path / "torch_npu-2.7.1.post4.dist-info").mkdir()
    (tmp_path / "torch.py").write_text("raise SystemExit('not to be imported')")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    value = answered(PythonEnv, list_packages({"python": str(wrapper)}))
    assert value.packages["torch_npu"] == "2.7.1.post4"
    assert value.path == str(wrapper)
    assert value.finds_torch
    assert answered(JobPython, find_python({"python": str(wrapper)})) == JobPython(
        asked=str(wrapper), path=str(wrapper)
    )
    assert answered(JobPython, find_python({"python": "/none"})) == JobPython(asked="/none", path="")
    assert answered(PythonEnv, list_packages({"python": "/none"})).root_cause == "job-python-missing"


NVIDIA = "2.7.0a0+7c8ec84dab.nv25.3"


@pytest.mark.parametrize(
    ("torch", "files", "version"),
    [
        (NVIDIA, ("libnccl.so.2", "libnccl.so.2.25.1"), "2.25.1"),
        (NVIDIA, ("libnccl.so.2.25.1", "libnccl.so.2.26.2"), ""),
        (NVIDIA, ("libnccl.so.2.x",), ""),
        ("2.0.1+cu117", ("libnccl.so.2.25.1",), ""),
    ],
)
def test_the_nccl_of_nvidias_builds_is_that_of_the_system(
    torch: str, files: tuple[str, ...], version: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package's other NCCL is not theirs; an official torch without a package has one inside."""
    for name in (f"torch-{torch}", *(("nvidia_nccl_cu12-2.27.5",) if torch == NVIDIA else ())):
        (tmp_path / f"{name}.dist-info").mkdir()
    for file in files:
        (tmp_path / file).touch()
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/none:{tmp_path}")
    value = answered(PythonEnv, list_packages({"python": str(wrapper)}))
    assert value.packages["torch"] == torch
    if torch == NVIDIA:
        assert value.nccl == (("libnccl", version) if version else None)
    else:
        assert value.system_nccl == version


@given(st.one_of(st.none(), st.text(), st.fixed_dictionaries({"path": st.just("/p"), "asked": st.just("")})))
@pytest.mark.parametrize("fact", [JobPython, PythonEnv, TorchImport])
def test_anything_else_is_unreadable(fact: Any, value: Any) -> None:
    assert isinstance(answered(fact, value), (Absent, JobPython))


@given(st.binary(max_size=200))
@pytest.mark.parametrize("fact", [JobPython, PythonEnv, TorchImport])
def test_noise_is_unreadable(fact: Any, noise: bytes) -> None:
    assert isinstance(learned(fact, {"": Output(out=noise.decode("utf-8", "replace"))}), Absent)


@given(st.text(max_size=300), st.integers(1, 255))
def test_a_failed_import_is_never_a_good_one(message: str, code: int) -> None:
    assert tried(raised(message, code)).error


def test_the_folder_of_the_jobs_script_is_searched_first_and_only_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of the script's folder hides Python's own; one of the folder where the login happens to be does not."""
    job, home = tmp_path / "job", tmp_path / "home"
    for folder in (job, home):
        folder.mkdir()
        (folder / "colorsys.py").write_text("x = 1\n")
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "torch.py").write_text("import colorsys\n__version__ = '1'\ncolorsys.rgb_to_hsv\n")
    monkeypatch.setenv("PYTHONPATH", str(lib))
    monkeypatch.chdir(home)
    there = answered(TorchImport, try_import({"python": sys.executable, "import_folder": str(job)}))
    assert there.error == "AttributeError: module 'colorsys' has no attribute 'rgb_to_hsv'"
    assert there.hides == (str(job / "colorsys.py"),)
    (job / "colorsys.py").unlink()
    assert answered(TorchImport, try_import({"python": sys.executable, "import_folder": str(job)})).error == ""
    gone = try_import({"python": sys.executable, "import_folder": str(tmp_path / "none")})
    assert answered(TorchImport, gone).hides == ()


def test_a_file_that_takes_the_name_of_torch_or_stands_in_pythonpath_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that the import does not name is not to blame, and the standard library hides nothing."""
    job, old, library = (tmp_path / name for name in ("job", "old", "library"))
    for folder in (job, old, library):
        folder.mkdir()
        (folder / "colorsys.py").write_text("rgb_to_hsv = 1\n")
    (library / "os.py").touch()
    (job / "colorsys.py").unlink()
    (job / "numpy.py").touch()
    (job / "torch.py").write_text("import absent_module\n")
    monkeypatch.setenv("PYTHONPATH", f"{old}:{library}:relative")
    tried = answered(TorchImport, try_import({"python": sys.executable, "import_folder": str(job)}))
    assert tried.error == "ModuleNotFoundError: No module named 'absent_module'"
    assert tried.hides == (str(job / "torch.py"), str(old / "colorsys.py"))


TORCH_OF_TEST = """
import os, sys
if os.environ.get("TORCH_LOGS") == "loud":
    raise ValueError("Invalid log settings: loud")
if os.environ.get("OMP_STACKSIZE") == "9999999G":
    print("libgomp: Thread creation failed: Resource temporarily unavailable", file=sys.stderr)
    os._exit(1)
__version__ = "2.13.0"
"""


@pytest.mark.parametrize(
    ("environ", "named", "observed"),
    [
        ({"TORCH_LOGS": "all", "OMP_STACKSIZE": "4M"}, (), ""),
        (
            {"TORCH_LOGS": "loud", "OMP_STACKSIZE": "4M"},
            ("OMP_STACKSIZE", "TORCH_LOGS"),
            "ValueError: Invalid log settings: loud",
        ),
        ({"OMP_STACKSIZE": "9999999G"}, ("OMP_STACKSIZE",), "Thread creation failed"),
        ({"PYTHONHASHSEED": "abc", "OMP_STACKSIZE": "4M"}, ("PYTHONHASHSEED",), "PYTHONHASHSEED"),
    ],
)
def test_the_trial_has_the_variables_of_the_job(
    environ: dict[str, str], named: tuple[str, ...], observed: str, tmp_path: Any
) -> None:
    """A value that ends Python, torch or its threads is the job's, whatever the host has."""
    (tmp_path / "torch.py").write_text(TORCH_OF_TEST)
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} -S "$@"\n')
    wrapper.chmod(0o755)
    value = answered(TorchImport, try_import({"python": str(wrapper), "environ": environ}))
    assert value.broken_by == named
    assert observed in value.error_with_set_env and bool(observed) == bool(value.error_with_set_env)
    assert answered(TorchImport, try_import({"python": str(wrapper)})).error == ""


def test_a_torch_that_fails_by_itself_is_not_laid_on_the_variables(tmp_path: Any) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch_cpu.so')")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} -S "$@"\n')
    wrapper.chmod(0o755)
    value = answered(TorchImport, try_import({"python": str(wrapper), "environ": {"TORCH_LOGS": "all"}}))
    assert (value.broken_by, value.error) == ((), "ImportError: libtorch_cpu.so")


def test_a_variable_that_this_very_process_has_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On doctor's own host the trial starts from the job's environment: without its variables, they are taken away."""
    (tmp_path / "torch.py").write_text(
        "import os\n__version__ = '1'\nif os.environ.get('TORCH_LOGS') == 'wrong':\n"
        "    raise ValueError('\\nInvalid log settings: wrong, must be names\\nof modules')\n"
    )
    monkeypatch.setenv("TORCH_LOGS", "wrong")
    arguments: dict[str, Any] = {"python": sys.executable, "import_folder": str(tmp_path)}
    bad = answered(TorchImport, try_import({**arguments, "environ": {"TORCH_LOGS": "wrong"}}))
    assert bad.broken_by == ("TORCH_LOGS",)
    assert bad.error == "ValueError: Invalid log settings: wrong, must be names"


def test_a_transport_that_this_torch_does_not_have_is_refused(tmp_path: Path) -> None:
    """torch raises it when it makes the group; which transports it has, it alone knows."""
    (tmp_path / "torch.py").write_text(
        "import os\n__version__ = '1'\nclass distributed:\n    class ProcessGroupGloo:\n        @staticmethod\n"
        "        def create_device(interface):\n            assert interface == 'lo'\n"
        "            if os.environ['GLOO_DEVICE_TRANSPORT'] == 'UV':\n"
        "                raise RuntimeError('makeDeviceForInterface(): unsupported gloo device')\n"
        "            raise RuntimeError('Unable to find address for: lo')\n"
    )
    arguments: dict[str, Any] = {"python": sys.executable, "import_folder": str(tmp_path)}
    bad = answered(TorchImport, try_import({**arguments, "environ": {"GLOO_DEVICE_TRANSPORT": "UV"}}))
    assert "unsupported gloo device" in bad.error and bad.broken_by == ("GLOO_DEVICE_TRANSPORT",)
    good = answered(TorchImport, try_import({**arguments, "environ": {"GLOO_DEVICE_TRANSPORT": "TCP"}}))
    assert not good.error and not good.broken_by
