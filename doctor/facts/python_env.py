"""The job's Python: which interpreter, which packages, and whether torch can be imported in it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from doctor.engine.fact import Absent, Fact, PerHost, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import beginning, filled
from doctor.facts.pip_commands import typed_interpreter
from doctor.remote.runtime.processes import run_tool
from doctor.remote.runtime.reading import effective_time, find_interpreter, find_tool, matching_paths
from doctor.remote.runtime.streams import last_lines

LIST_PACKAGES = """
import os, sys
names = "torch", "torch_npu", "mindspore", "numpy"
nvidia = "nvidia_nccl", "nvidia_cuda_runtime"
def is_ours(name):
    start, cut, cuda = name.rpartition("_cu")
    return name in names + nvidia or start in nvidia and cuda.isdigit()
def version_of(entry):
    for end in ".dist-info", ".egg-info":
        parts = entry[:-len(end)].split("-")
        for count in (4, 3, 2, 1):
            name, rest = "_".join(parts[:count]), parts[count:]
            if entry.endswith(end) and is_ours(name) and rest and rest[0] and len(rest) < 3:
                return name, rest[0]
for folder in sys.path[1:]:
    entries = os.listdir(folder) if os.path.isdir(folder) else ()
    found = sorted(set(version_of(entry) for entry in entries) - set([None]))
    print("doctor folder")
    for name, version in found:
        print("doctor package " + name + " " + ascii(version)[1:-1])
if sys.meta_path and all(hasattr(finder, "find_spec") for finder in sys.meta_path):
    torch = any(finder.find_spec("torch", None) is not None for finder in sys.meta_path)
else:
    import importlib.util
    torch = importlib.util.find_spec("torch") is not None
print("doctor torch" if torch else "doctor no-torch")
if sys.prefix == sys.base_prefix and os.path.exists(os.path.dirname(os.__file__) + "/EXTERNALLY-MANAGED"):
    print("doctor managed")
print("doctor version " + ".".join(str(part) for part in sys.version_info[:3]))
"""
"""Imports nothing that Python itself does not: `re`, `json` and `importlib.util` take twice as long as its start."""
IMPORT_TORCH = """
import sys
sys.path[:1] = sys.argv[1:]
import gc, importlib.util, os
gc.disable()
if importlib.util.find_spec("torch"):
    import torch
    if importlib.util.find_spec("torch_npu"):
        import torch_npu
    getattr(torch, "sin", id)(getattr(torch, "ones", range)(1 << 17))
    gloo = getattr(getattr(torch, "distributed", None), "ProcessGroupGloo", None)
    try:
        if gloo and "GLOO_DEVICE_TRANSPORT" in os.environ:
            gloo.create_device(interface="lo")
    except RuntimeError as error:
        if "unsupported gloo device" in str(error):
            raise
    print("doctor-imported " + torch.__version__)
else:
    print("doctor-no-torch")
sys.stdout.flush()
os._exit(0)
"""
"""Arguments: the folder that the job's Python looks into first, where it is known.

The sine of many numbers starts OpenMP's threads. A device of Gloo is made where a variable names its transport: which
ones there are is decided when torch is built (GlooDeviceFactory.cpp). Collects no garbage and takes nothing down at its
end: two fifths of the CPU time of an import of torch.
"""


def job_interpreter(arguments: ProbeArguments) -> tuple[list[str], dict[str, Any]]:
    """Runs on the host: the words that start the job's interpreter, none where there is none; and what to answer."""
    requested = arguments.get("python", "")
    python = find_interpreter(requested, launcher=(arguments.get("module") or ("",))[0]) or []
    return python, {"asked": requested, "path": "".join(python[:1])}


def find_python(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the path of the job's interpreter; empty when there is none."""
    return job_interpreter(arguments)[1]


class JobPython(Fact, frozen=True):
    """The interpreter that the job runs in, and whether it is on the host.

    Raw output, as JSON::

        {"asked": "", "path": "/usr/bin/python3"}
    """

    probe = ask(find_python, job=True)

    asked: str
    """As the user named it; empty when not named."""
    path: str
    """Empty: there is none."""


def ask_interpreter(
    arguments: ProbeArguments, program: str, seconds: float, ends: tuple[str, ...]
) -> tuple[dict[str, Any], list[list[str]]]:
    """Runs on the host: a program in the job's interpreter, and the words of the lines that it marks with ``doctor``.

    No lines: there is no such interpreter, or it failed, as the answer says. ``ends``: what the last line begins with.
    """
    python, answer = job_interpreter(arguments)
    if not python:
        return answer, []
    code, out, err = run_tool([*python, "-c", program], dict(os.environ), seconds)
    lines = [line.split(" ", 3) for line in out.decode("utf-8", "replace").splitlines() if line.startswith("doctor ")]
    if code or not lines or lines[-1][1] not in ends:
        errors = err.decode("utf-8", "replace").strip().splitlines()
        return dict(answer, error=errors[-1][:300] if errors else "it printed nothing"), []
    return answer, lines


def list_packages(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the versions of the packages that the job's interpreter finds."""
    answer, lines = ask_interpreter(arguments, LIST_PACKAGES, 18, ("version",))
    if not lines:
        return answer
    packages: dict[str, list[str]] = {}
    here: dict[str, list[str]] = {}
    for fields in lines:
        if fields[1] == "package":
            here.setdefault(fields[2], []).append(fields[3])
            continue
        packages = dict(here, **packages)  # of several folders the first counts, as for an import
        here = {}
    compat = "compat" in os.environ.get("LD_LIBRARY_PATH", "") or matching_paths("/usr/local/cuda*/compat/libcuda.so*")
    answer.update(version=lines[-1][2], packages=packages, torch=["doctor", "torch"] in lines)
    answer["managed"] = ["doctor", "managed"] in lines
    if any(".nv" in version for version in packages.get("torch", ())):
        # NVIDIA's builds take the NCCL of the system, whose file is named by its version.
        folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")][:32]
        folders += ["/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/local/cuda/lib64"]
        files = {os.path.basename(path) for folder in folders for path in matching_paths(folder + "/libnccl.so.2.*")}
        answer["nccl"] = sorted(files)[:8]
    return dict(answer, compat=bool(compat))


class PythonEnv(Fact, frozen=True):
    """The job's interpreter and the versions of what is installed for it; nothing is imported.

    Raw output, as JSON::

        {"asked": "", "path": "/usr/bin/python3", "version": "3.10.12",
         "packages": {"torch": ["2.7.1+cpu"], "torch_npu": ["2.7.1.post4"]}, "torch": true}
    """

    probe = ask(list_packages, job=True, timeout=20)

    path: str
    version: str
    """Such as 3.10.12."""
    packages: dict[str, str]
    """Versions of torch, torch_npu, mindspore, numpy, and NVIDIA's packages of NCCL and the CUDA runtime."""
    finds_torch: bool
    """``import torch`` would find something, installed as a distribution or not."""
    has_cuda_compat: bool = False
    """NVIDIA's package cuda-compat lets an older driver run programs of a newer CUDA."""
    system_nccl: str = ""
    """The version of libnccl in the library folders, such as 2.25.1, where torch is a build of NVIDIA's.

    Those are linked with it, not with a package of NCCL; empty for other builds, without a file, and with several.
    """

    is_managed: bool = False
    """The distribution's own, into which pip installs only when that is asked for (PEP 668)."""

    @property
    def typed(self) -> str:
        """The interpreter as it is typed in front of ``-m pip``."""
        return typed_interpreter(self.path, self.is_managed)

    @property
    def minor_version(self) -> str:
        return ".".join(self.version.split(".")[:2])

    @property
    def cuda_version(self) -> str:
        """The CUDA version that torch was built for, such as 12.4; empty without CUDA, or if unknown."""
        torch = self.packages.get("torch", "")
        local = re.search(r"\+cu([0-9]{2})([0-9])$", torch)
        if not torch or "+" in torch:
            return f"{local[1]}.{local[2]}" if local else ""
        runtime = self._nvidia("nvidia_cuda_runtime")[1]
        return ".".join(runtime.split(".")[:2])

    @property
    def rocm_version(self) -> str:
        """The ROCm that torch was built for, such as 6.3 or 6.2.4; empty for other builds, or if unknown."""
        local = re.search(r"\+rocm([0-9]{1,2}(?:\.[0-9]{1,2}){1,3})", self.packages.get("torch", ""), re.ASCII)
        return local[1] if local else ""

    @property
    def nccl(self) -> tuple[str, str] | None:
        """Name and version of the package or library with the NCCL that torch uses."""
        if ".nv" in self.packages.get("torch", ""):
            return ("libnccl", self.system_nccl) if self.system_nccl else None
        package = self._nvidia("nvidia_nccl")
        return package if package[1] else None

    def _nvidia(self, start: str) -> tuple[str, str]:
        return next(((name, text) for name, text in self.packages.items() if name.startswith(start)), ("", ""))

    @classmethod
    def read(cls, answer: ProbeAnswer) -> PythonEnv:
        data = answer.json()
        _require_interpreter(data)
        versions_by_package = msgspec.convert(data["packages"], dict[str, list[str]])
        several = {name: ", ".join(each) for name, each in versions_by_package.items() if len(each) > 1}
        packages = {name: versions[0] for name, versions in sorted(versions_by_package.items()) if len(versions) == 1}
        files = msgspec.convert(data.get("nccl", []), list[str])
        matches = [re.fullmatch(r"libnccl\.so\.(2\.[0-9]{1,3}\.[0-9]{1,3})", file, re.ASCII) for file in files]
        libraries = {match[1] for match in matches if match}
        return cls(
            path=data["path"],
            version=msgspec.convert(data["version"], str),
            packages=packages,
            finds_torch=msgspec.convert(data["torch"], bool),
            has_cuda_compat=msgspec.convert(data.get("compat", False), bool),
            system_nccl=next(iter(libraries)) if len(libraries) == 1 else "",
            is_managed=msgspec.convert(data.get("managed", False), bool),
            unread={name: filled("several versions are installed: {0}", text) for name, text in several.items()},
        )


def _require_interpreter(data: dict[str, object]) -> None:
    if not data["path"] and data["asked"]:
        raise Unreadable(filled("there is no interpreter {0}", data["asked"]), "job-python-missing")
    if not data["path"]:
        raise Absent("there is no python3 where the job runs")
    if data.get("error"):
        raise Unreadable(filled("{0} does not run: {1}", data["path"], data["error"]))


def _modules_hidden(folder: str, search_path: str) -> list:  # type: ignore[type-arg]
    """The files and folders that stand in for modules: of the standard library, in the job's folder and those of
    PYTHONPATH; of PyTorch and NumPy, in the job's folder. A folder that is the library itself has ``os.py``.
    """
    standard = {name + ".py" for name in getattr(sys, "stdlib_module_names", ())}  # from Python 3.10 on
    packages = {"numpy", "numpy.py", "torch", "torch.py", "torch_npu", "torch_npu.py"}
    hidden: list = []  # type: ignore[type-arg]
    for place in [folder] + [entry for entry in search_path.split(":")[:16] if entry.startswith("/")]:
        with contextlib.suppress(OSError):
            names = set(os.listdir(place)) if place else set()
            own = packages if place == folder and not place.endswith("-packages") else set()
            if "os.py" not in names:
                hidden += [os.path.join(place, name) for name in sorted(names.intersection(standard | own))]
    return hidden[:8]


def _attempt(command: list, environ: dict, seconds: float) -> dict:  # type: ignore[type-arg]
    """Exit code, stdout and stderr of a command that gets these variables, too; or the seconds that it had.

    It has so many without those in which it waits for a CPU. An empty value takes a variable away.
    """
    import subprocess

    pipe = subprocess.PIPE
    merged = dict(os.environ, **environ)
    variables = {name: value for name, value in merged.items() if value or name not in environ}
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, env=variables)
    taken = effective_time(f"/proc/{process.pid}/task/{process.pid}")
    pause = seconds
    while True:
        try:
            output = process.communicate(timeout=pause)
            break
        except subprocess.TimeoutExpired:
            pause = 0.1
            if taken() >= seconds:
                process.kill()
                process.communicate()
                return {"timeout": int(seconds)}
    out, err = [last_lines(text, 8000) for text in output]
    return {"code": process.returncode, "out": out, "err": err}


def try_import(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: imports torch in the job's interpreter; exit code, stdout and stderr of each try.

    The last one, where no other went well, is without the job's variables.
    """
    python, answer = job_interpreter(arguments)
    answer.update(set_env="", tries=[])
    if not python:
        return answer
    folder = str(arguments.get("import_folder") or "")
    folders = [folder] if folder and os.path.isdir(folder) else []
    scripts = ["/cann/set_env.sh", "/ascend-toolkit/set_env.sh", "/nnae/set_env.sh", "/latest/set_env.sh"]
    tops = ["/usr/local/Ascend", os.environ.get("HOME", "") + "/Ascend"]
    set_env_scripts = [top + script for top in tops for script in scripts if os.path.exists(top + script)]
    answer["set_env"] = set_env_scripts[0] if set_env_scripts else ""
    variables = dict(arguments.get("environ") or {})
    search_path = str(dict(os.environ, **variables).get("PYTHONPATH", ""))
    answer["hides"] = _modules_hidden("".join(folders), search_path)
    answer["given"] = sorted(variables)
    runs = [(script, variables) for script in ["", *set_env_scripts[:1]]]
    runs += [(runs[-1][0], {name: "" for name in variables if name != "PATH"})] if variables else []
    for script, environ in runs:
        line = '. "$0" >/dev/null 2>&1; exec "$@"' if script else 'exec "$@"'
        shell = find_tool("bash", os.environ.get("PATH", "")) or "/bin/sh"
        command = [shell, "-c", line, script, *python, "-c", IMPORT_TORCH, *folders]
        answer["tries"].append(_attempt(command, environ, 40))
        if answer["tries"][-1].get("code", 0) == 0:  # it went well, or took too long
            break
    return answer


Cause = Literal["", "cann", "driver", "other"]


class TorchImport(Fact, frozen=True):
    r"""What came of one ``import torch`` (and torch_npu, where it is installed) with the job's interpreter.

    First in the environment of a plain login, as a launcher over SSH gets it, with the job's variables that are read at
    a start; when that fails and the host has CANN's ``set_env.sh``, once more after sourcing it; and when that fails,
    once more without the job's variables. The folder of the job's script, where a launch line names it and the
    host has it, is searched first, as Python does.

    Raw output, as JSON::

        {"asked": "", "path": "/usr/bin/python3", "set_env": "", "given": ["TORCH_LOGS"],
         "tries": [{"code": 0, "out": "doctor-imported 2.7.1\n", "err": ""}]}
    """

    probe = ask(try_import, job=True, timeout=300)  # by the clock; each try has its own time
    needs = (PythonEnv,)
    not_planned_reason = "torch is not installed for the job's interpreter"

    error: str
    """What the plain login's import raised, at its root; empty when it went well."""
    set_env: str
    """CANN's script on this host; empty when there is none."""
    error_with_set_env: str
    """What was raised with that script sourced, or without one; empty when it went well."""
    hides: tuple[str, ...] = ()
    """Files in the folder of the job's script, and in PYTHONPATH, that stand in for modules that torch imports."""
    broken_by: tuple[str, ...] = ()
    """Variables of the job without which the import goes well, where it fails with them: of several, any may be it."""

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> dict[str, object]:
        """Only where there is a torch: an interpreter is not started for nothing on every host."""
        return {host: True for host, env in fleet_facts[PythonEnv].items() if env.finds_torch}

    @classmethod
    def read(cls, answer: ProbeAnswer) -> TorchImport:
        data = answer.json()
        _require_interpreter(data)
        variables = msgspec.convert(data.get("given", []), list[str])
        tries = data["tries"]
        count = 2 if data["set_env"] else 1  # with the job's variables
        errors = [_attempt_error(attempt) for attempt in tries[:count]]
        hides = msgspec.convert(data.get("hides", []), tuple[str, ...])
        goes_without = variables and len(tries) > count and tries[count].get("code") == 0
        text = tries[count - 1].get("err", "") if goes_without else ""
        named = [name for name in variables if name in text] or variables
        return cls(
            error=errors[0],
            set_env=data["set_env"],
            error_with_set_env=errors[-1],
            hides=tuple(path for path in hides if not _PACKAGE.search(path) or path in tries[count - 1].get("err", "")),
            broken_by=tuple(named[:16]) if goes_without else (),
        )


_PACKAGE = re.compile(r"/(?:numpy|torch|torch_npu)(?:\.py)?\Z")
"""One that is installed, too: it is to blame where the import names it."""


def _attempt_error(attempt: dict[str, Any]) -> str:
    """What one try raised. Raises: Absent without torch; Unreadable when it did not end."""
    if "timeout" in attempt:
        raise Unreadable(filled("import torch: no answer in {0} s", attempt["timeout"]))
    if attempt["code"] == 0:
        if "doctor-imported " in attempt["out"]:
            return ""
        if "doctor-no-torch" in attempt["out"]:
            raise Absent("torch is not installed for the job's interpreter")
        raise Unreadable("import torch: the interpreter printed nothing")
    raised = re.findall(
        r"^((?:[\w.]+(?:Error|Exception|Warning)|Exception|SystemExit|Fatal Python error)\b:?(?: ?\S.*| *\n.*|))$",
        attempt["err"],
        re.M,
    )
    # The root stands first: what is raised while it is handled says only that loading torch_npu failed.
    causes = [line for line in raised if "Failed to load the backend extension" not in line and "Warning" not in line]
    set_env_errors = [line for line in causes if "set_env.sh" in line]
    if causes:
        return beginning(" ".join(str((set_env_errors or causes)[0]).split()), 400)
    error_lines = attempt["err"].strip().splitlines()
    ended = (
        filled("killed by signal {0}", -attempt["code"])
        if attempt["code"] < 0
        else filled("exit status {0}", attempt["code"])
    )
    return filled("{0} ({1})", beginning(error_lines[-1].strip(), 300), ended) if error_lines else ended


_DRIVER_LIBRARIES = r"libascend_hal|libdrv\w*|libdcmi|libc_sec"
_CANN_LIBRARIES = r"libhccl\w*|libascendcl|libacl\w*|libge_\w+|libgraph\w*|libopapi\w*|libruntime|libatb\w*|libnnopbase"


def missing_library(error: str) -> str:
    """The shared library that an import did not find, or the empty string."""
    match = re.search(r"(?<![\w.+-])(lib[\w.+-]*): cannot open shared object file", error)
    return match[1] if match and ".so" in match[1] else ""


def import_cause(error: str) -> Cause:
    """Whose part is missing, by the words of the error."""
    if not error:
        return ""
    library = missing_library(error)
    if re.match(rf"({_DRIVER_LIBRARIES})\.", library):
        return "driver"
    if re.match(rf"({_CANN_LIBRARIES})\.", library) or re.search(r"set_env\.sh|\bASCEND_\w+_PATH\b", error):
        return "cann"
    return "other"
