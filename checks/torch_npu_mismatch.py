from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.engine.version_matrix import base_version
from doctor.facts.pip_commands import install_command
from doctor.facts.python_env import PythonEnv

CAUSES = {"torch-version-differs": ("pair",)}


@check(severity=ERROR, area="versions", follows_from=CAUSES)
def torch_npu_mismatch(python: PythonEnv) -> Iterator[Finding]:
    """torch_npu was built for the torch that is installed beside it.

    ## Why it matters
    torch_npu is linked against one release of torch. With another it fails to load with an undefined symbol, or calls
    functions that have changed.

    ## What to do
    On {host}: `{pip}`.

    ## Source
    COMPATIBILITY.en.md of torch_npu: its version is that of torch, with a `.postN` of its own behind it.
    """
    torch, torch_npu = python.packages.get("torch"), python.packages.get("torch_npu")
    if torch_npu is None:
        raise Skip("torch_npu is not installed for the job's interpreter")
    if "torch" in python.unread:
        raise Unreadable(filled("torch: {0}", python.unread["torch"]))
    if torch is None:
        yield Finding(
            "torch_npu {torch_npu} is installed, but torch is not",
            torch_npu=torch_npu,
            python=python.typed,
            pip=install_command(python.typed, "torch", f"{base_version(torch_npu)}+cpu").replace("+cpu", ""),
            observed="no torch",
            expected=base_version(torch_npu),
        )
        return
    expected = base_version(torch_npu)
    if not (expected and base_version(torch)):
        raise Unreadable(filled("torch {0} and torch_npu {1} cannot be compared", torch, torch_npu))
    if base_version(torch) != expected:
        yield Finding(
            "torch {observed} with torch_npu {torch_npu}; expected torch {expected}",
            torch_npu=torch_npu,
            python=python.typed,
            pip=install_command(python.typed, "torch", f"{expected}+cpu").replace("+cpu", ""),
            pair="torch",
            observed=torch,
            expected=expected,
        )
