from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.engine.version_matrix import TABLE_DATE, cann_for_torch_npu, same_cann_release
from doctor.facts.python_env import PythonEnv
from doctor.facts.versions import CannVersion

CAUSES = {"cann-version-differs": ("observed", "expected")}


@check(severity=WARNING, area="versions", follows_from=CAUSES)
def torch_npu_cann_mismatch(python: PythonEnv, cann: CannVersion) -> Iterator[Finding]:
    """torch_npu runs on the CANN that it was released for.

    ## Why it matters
    torch_npu then calls functions that this CANN does not have: the import fails (`undefined symbol`), or the first use
    (`error code is 15`, an operator that is not supported). Other pairs may work but are untested.

    ## What to do
    On {host}, install a torch_npu that belongs to CANN {observed}, or CANN {expected} with its package from
    hiascend.com: `./Ascend-cann-toolkit_{expected}_linux-$(uname -m).run --install`.

    ## Source
    The table of COMPATIBILITY.en.md of torch_npu, as of the day in doctor/engine/version_matrix.py. Patches of one line
    of CANN (8.5.0 and 8.5.1) count as one. A torch_npu that the table does not hold is unknown, not wrong.
    Names of the packages: hiascend.com, Index SDK 7.3.0, "Installing the NPU Driver, Firmware, and CANN".
    """
    torch_npu = python.packages.get("torch_npu")
    if torch_npu is None:
        raise Skip("torch_npu is not installed for the job's interpreter")
    expected = cann_for_torch_npu(torch_npu)
    if not expected:
        raise Unreadable(filled("torch_npu {0} is not in the compatibility table of {1}", torch_npu, TABLE_DATE))
    if not same_cann_release(cann.version, expected):
        yield Finding(
            "torch_npu {torch_npu} on CANN {observed}; it was released for CANN {expected}",
            torch_npu=torch_npu,
            path=cann.path,
            observed=cann.version,
            expected=expected,
        )
