"""Commands of pip, as a person types them on a host. Pure."""

from __future__ import annotations

import re
import shlex

UNDECIDED = "<version>"
"""Of a package whose version only the reader knows."""


def typed_interpreter(path: str, is_managed: bool) -> str:
    """An interpreter as it is typed in front of ``-m pip``; `PythonEnv.is_managed`."""
    return shlex.join([*(("env", "PIP_BREAK_SYSTEM_PACKAGES=1") if is_managed else ()), path])


def install_command(python: str, package: str, version: str) -> str:
    """The whole command. A build of torch for a CPU, CUDA or ROCm is on PyTorch's own index, and on no other.

    ``python``: as it is typed, `PythonEnv.typed`.

    >>> install_command("/opt/job/bin/python", "torch", "2.7.1+cpu")
    '/opt/job/bin/python -m pip install torch==2.7.1+cpu --index-url https://download.pytorch.org/whl/cpu'
    """
    build = re.search(r"\+(cpu|cu[0-9]{2,4}|rocm[0-9.]{1,8})$", version, re.ASCII) if package == "torch" else None
    index = f" --index-url https://download.pytorch.org/whl/{build[1]}" if build else ""
    pinned = version if version == UNDECIDED else shlex.quote(version)
    return f"{python} -m pip install {package}=={pinned}{index}"
