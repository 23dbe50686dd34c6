from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.vendor_tests import DcgmDiagnosis

MUST_STOP = (2, 6)
"""DCGM_ERROR_ISOLATE and DCGM_ERROR_RESET."""
SETTING = 5
"""DCGM_ERROR_CONFIG."""
OWN_CHECKS = ("persistence mode", "environment variables", "graphics processes")
"""Tests of settings, by which releases before 3.1 name no severity."""


@check(severity=ERROR, area="devices")
def dcgm_diagnosis_failed(diagnosis: DcgmDiagnosis) -> Iterator[Finding]:
    """DCGM's short diagnosis finds no fault of a device.

    ## Why it matters
    NVIDIA's data centre GPU manager tests driver, libraries, memory and links by the vendor's own limits. A GPU that it
    wants isolated or reset ends a job, or computes wrong results.

    ## What to do
    On {host}, while no job runs: `dcgmi diag -r 2` tests more. Take the host out of the job (in Slurm: `scontrol update
    NodeName={host} State=DRAIN Reason=dcgm`), then `reboot`. Where `dcgmi diag -r 1` fails again, have the device
    that it names replaced. For the vendor: `dcgmi diag -r 3 -j` and `nvidia-bug-report.sh`.

    ## Source
    NVIDIA DCGM, `dcgmi diag -r 1 -j` (dcgmi/Diag.cpp, dcgmlib/dcgm_errors.h of github.com/NVIDIA/DCGM): level 1 takes
    seconds and leaves the GPUs to their jobs. It is left out where the host engine does not run,
    another diagnosis runs, or this user may start none. A failure of severity
    2 (isolate) or 6 (reset) is an error, others are warnings. Left out are settings of the host (severity 5, such as
    the persistence mode), which checks of their own judge.
    """
    for failure in diagnosis.failures:
        is_setting = failure.severity == SETTING or (failure.severity is None and failure.test.lower() in OWN_CHECKS)
        if not is_setting:
            yield Finding(
                "DCGM's test {test} failed: {device}: {observed}"
                if failure.device
                else "DCGM's test {test} failed: {observed}",
                test=failure.test,
                device=failure.device or None,
                observed=failure.text,
            ).as_warning(failure.severity not in MUST_STOP)
