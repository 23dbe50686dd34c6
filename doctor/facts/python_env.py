"""The job's Python: which interpreter, which packages, and whether torch can be imported in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from doctor.engine.fact import Absent, Answer, Fact, PerHost, Unreadable, ask


def find_python(given: dict[str, Any]) -> dict[str, Any]:
    import os
    import shutil

    asked = given.get("python", "")
    path = os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin"
    return {"asked": asked, "path": shutil.which(asked or "python3", path=path) or ""}


class JobPython(Fact, frozen=True):
    """The interpreter that the job runs in, and whether it is on the host."""

    probe = ask(find_python, job=True)

    asked: str
    """As the user named it; empty when nobody did."""
    path: str
    """Empty: there is none."""

    @classmethod
    def read(cls, answer: Answer) -> JobPython:
        return msgspec.convert(answer.json(), cls)


def look_at_packages(given: dict[str, Any]) -> dict[str, Any]:
    import json
    import os
    import shutil
    import subprocess

    asked = given.get("python", "")
    path = os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin"
    python = shutil.which(asked or "python3", path=path)
    if not python:
        return {"asked": asked, "path": ""}
    program = """
import importlib.util, json, os, re, sys
form = r"(torch|torch[-_]npu|mindspore|numpy)-([^-]+)(?:-[^-]+)?[.](?:dist|egg)-info$"
found = {}
for folder in sys.path[1:]:
    here = {}
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        match = re.match(form, name)
        if match:
            here.setdefault(match.group(1).replace("-", "_"), []).append(match.group(2))
    for name in here:
        found.setdefault(name, sorted(set(here[name])))
version = ".".join(str(part) for part in sys.version_info[:3])
torch = importlib.util.find_spec("torch") is not None
print("doctor " + json.dumps({"version": version, "packages": found, "torch": torch}))
"""
    done = subprocess.run([python, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=18)  # noqa: UP022
    answers = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.startswith("doctor ")]
    if done.returncode or not answers:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return {"asked": asked, "path": python, "error": words[-1] if words else "it said nothing"}
    return dict(json.loads(answers[-1][7:]), asked=asked, path=python)


class PythonEnv(Fact, frozen=True):
    """The job's interpreter and the versions of what is installed for it; nothing is imported."""

    probe = ask(look_at_packages, job=True, timeout=20)

    path: str
    version: str
    """Such as 3.10.12."""
    packages: dict[str, str]
    """Versions of torch, torch_npu, mindspore and numpy, those that are installed."""
    finds_torch: bool
    """``import torch`` would find something, installed as a distribution or not."""

    @property
    def line(self) -> str:
        """Major and minor version, such as 3.10."""
        return ".".join(self.version.split(".")[:2])

    @classmethod
    def read(cls, answer: Answer) -> PythonEnv:
        said = answer.json()
        _must_be_there(said)
        found = msgspec.convert(said["packages"], dict[str, list[str]])
        unread = {name: f"several versions are installed: {', '.join(v)}" for name, v in found.items() if len(v) > 1}
        packages = {name: versions[0] for name, versions in sorted(found.items()) if len(versions) == 1}
        version = msgspec.convert(said["version"], str)
        finds = msgspec.convert(said["torch"], bool)
        return cls(path=said["path"], version=version, packages=packages, finds_torch=finds, unread=unread)


def _must_be_there(said: dict[str, Any]) -> None:
    if not said["path"] and said["asked"]:
        raise Unreadable(f"there is no interpreter {said['asked']}", "job-python-missing")
    if not said["path"]:
        raise Absent("there is no python3 where the job runs")
    if said.get("error"):
        raise Unreadable(f"{said['path']} does not run: {said['error']}")


def try_import(given: dict[str, Any]) -> dict[str, Any]:
    import os
    import shutil
    import subprocess
    import time

    asked = given.get("python", "")
    path = os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin"
    python = shutil.which(asked or "python3", path=path)
    answer = {"asked": asked, "path": python or "", "set_env": "", "tries": []}
    if not python:
        return answer
    program = """
import importlib.util
if importlib.util.find_spec("torch"):
    import torch
    if importlib.util.find_spec("torch_npu"):
        import torch_npu
    print("doctor-imported " + torch.__version__)
else:
    print("doctor-no-torch")
"""
    scripts = ["/cann/set_env.sh", "/ascend-toolkit/set_env.sh", "/nnae/set_env.sh", "/latest/set_env.sh"]
    tops = ["/usr/local/Ascend", os.environ.get("HOME", "") + "/Ascend"]
    there = [top + script for top in tops for script in scripts if os.path.exists(top + script)]
    answer["set_env"] = there[0] if there else ""
    end = time.time() + 50
    for script in ["", *there[:1]]:
        line = '. "$0" >/dev/null 2>&1; exec "$@"' if script else 'exec "$@"'
        shell = shutil.which("bash") or "/bin/sh"
        command = [shell, "-c", line, script, python, "-c", program]
        seconds = min(40, max(1, end - time.time()))
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds)  # noqa: UP022
            out, err = [text.decode("utf-8", "replace")[-8000:] for text in (done.stdout, done.stderr)]
            answer["tries"].append({"code": done.returncode, "out": out, "err": err})
        except subprocess.TimeoutExpired:
            answer["tries"].append({"timeout": int(seconds)})
            break
        if done.returncode == 0:
            break
    return answer


Cause = Literal["", "cann", "driver", "other"]


class TorchImport(Fact, frozen=True):
    """What came of one ``import torch`` (and torch_npu, where it is installed) with the job's interpreter.

    First in the environment of a plain login, as a launcher over SSH gets it; when that fails and the host has CANN's
    ``set_env.sh``, once more after sourcing it.
    """

    probe = ask(try_import, job=True, timeout=55)
    needs = (PythonEnv,)
    unasked = "torch is not installed for the job's interpreter"

    error: str
    """What the plain login's import raised, at its root; empty when it went well."""
    set_env: str
    """CANN's script on this host; empty when there is none."""
    error_after: str
    """What was raised with that script sourced, or without one; empty when it went well."""

    @classmethod
    def plan(cls, seen: Mapping[type[Fact], PerHost[Any]]) -> dict[str, Any]:
        """Only where there is a torch: an interpreter is not started for nothing on every host."""
        return {host: True for host, env in seen[PythonEnv].items() if env.finds_torch}

    @classmethod
    def read(cls, answer: Answer) -> TorchImport:
        said = answer.json()
        _must_be_there(said)
        errors = [_error(one) for one in said["tries"]]
        return cls(error=errors[0], set_env=said["set_env"], error_after=errors[-1])


def _error(one: dict[str, Any]) -> str:
    """What one try raised. Raises: Absent without torch; Unreadable when it did not end."""
    if "timeout" in one:
        raise Unreadable(f"import torch: no answer in {one['timeout']} s")
    if one["code"] == 0:
        if "doctor-imported " in one["out"]:
            return ""
        if "doctor-no-torch" in one["out"]:
            raise Absent("torch is not installed for the job's interpreter")
        raise Unreadable("import torch: the interpreter said nothing")
    raised = re.findall(r"^((?:[\w.]+(?:Error|Exception|Warning)|Exception|SystemExit)\b:? ?.*)$", one["err"], re.M)
    # The root stands first: what is raised while it is handled says only that loading torch_npu failed.
    causes = [line for line in raised if "Failed to load the backend extension" not in line and "Warning" not in line]
    told = [line for line in causes if "set_env.sh" in line]
    if causes:
        return str((told or causes)[0]).strip()[:400]
    words = one["err"].strip().splitlines()
    ended = f"killed by signal {-one['code']}" if one["code"] < 0 else f"exit status {one['code']}"
    return f"{words[-1].strip()[:300]} ({ended})" if words else ended


_DRIVER_LIBRARIES = r"libascend_hal|libdrv\w*|libdcmi|libc_sec"
_CANN_LIBRARIES = r"libhccl\w*|libascendcl|libacl\w*|libge_\w+|libgraph\w*|libopapi\w*|libruntime|libatb\w*|libnnopbase"


def missing_library(error: str) -> str:
    """The shared library that an import did not find, or the empty string."""
    found = re.search(r"\b(lib[\w.+-]*\.so[\w.]*): cannot open shared object file", error)
    return found[1] if found else ""


def cause(error: str) -> Cause:
    """Whose part is missing, by the words of the error."""
    if not error:
        return ""
    library = missing_library(error)
    if re.match(rf"({_DRIVER_LIBRARIES})\.", library):
        return "driver"
    if re.match(rf"({_CANN_LIBRARIES})\.", library) or re.search(r"set_env\.sh|\bASCEND_\w+_PATH\b", error):
        return "cann"
    return "other"
