from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.engine.version_matrix import TABLE_DATE, cann_for_release, same_cann_release
from doctor.facts.python_env import PythonEnv
from doctor.facts.versions import CannVersion

CAUSES = {"cann-version-differs": ("observed", "expected")}
FRAMEWORKS = {"torch_npu": "torch_npu", "mindspore": "MindSpore"}


@check(severity=WARNING, area="versions", follows_from=CAUSES)
def torch_npu_cann_mismatch(python: PythonEnv, cann: CannVersion) -> Iterator[Finding]:
    """torch_npu and MindSpore run on the CANN that they were released for.

    ## Why it matters
    They then call functions that this CANN does not have: the import fails (`undefined symbol`), or the first use
    (`error code is 15`, an operator that is not supported). Other pairs may work but are untested.

    ## What to do
    On {host}, install a {framework} that belongs to CANN {observed}, or CANN {expected} with its package from
    hiascend.com: `./Ascend-cann-toolkit_{expected}_linux-$(uname -m).run --install`.

    ## Source
    The table of COMPATIBILITY.en.md of torch_npu, as of the day in doctor/engine/version_matrix.py. Patches of one line
    of CANN (8.5.0 and 8.5.1) count as one. A torch_npu that the table does not hold is unknown, not wrong. For
    MindSpore: version_match.json of Ascend's deployer (doctor/engine/mindspore_cann.toml), which holds few releases.
    Names of the packages: hiascend.com, Index SDK 7.3.0, "Installing the NPU Driver, Firmware, and CANN".
    """
    installed = {name: python.packages[name] for name in FRAMEWORKS if name in python.packages}
    if not installed:
        raise Skip("neither torch_npu nor MindSpore is installed for the job's interpreter")
    expected = {name: cann_for_release(name, version) for name, version in installed.items()}
    for name, wanted in expected.items():
        if wanted and not same_cann_release(cann.version, wanted):
            yield Finding(
                "{framework} {version} on CANN {observed}; it was released for CANN {expected}",
                framework=FRAMEWORKS[name],
                version=installed[name],
                path=cann.path,
                observed=cann.version,
                expected=wanted,
            )
    if expected.get("torch_npu") == "":
        raise Unreadable(
            filled("torch_npu {0} is not in the compatibility table of {1}", installed["torch_npu"], TABLE_DATE)
        )
    if not any(expected.values()):
        raise Skip(filled("the table does not hold MindSpore {0}", installed["mindspore"]))
