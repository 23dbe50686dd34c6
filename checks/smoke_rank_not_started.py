from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.diagnose.lookup import fix_of
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import DEVICE_MEMORY, failure_findings

REMEDIES = (
    DEVICE_MEMORY,
    (
        r"\bNo module named 'torch'",
        (
            "This interpreter has no torch. If the job uses another one, name it by its whole path: "
            "`doctor smoke --python <path>`. If it is the job's own, install torch for it on each of these hosts: "
            "`{python} -m pip install torch`."
        ),
    ),
    (
        (
            r"\blib(?:ascend|hccl|acl|ge_|runtime|nnopbase|opapi|register)\S*: cannot open shared object"
            r"|\bCANN (?:toolkit|package|environment) (?:was |is )?not\b|\bsource \S*set_env\.sh"
            r"|No module named '(?:acl|te|tbe|hccl)'"
        ),
        (
            "Set CANN's environment for the job (`source /usr/local/Ascend/ascend-toolkit/set_env.sh`), and put the "
            "driver's libraries on LD_LIBRARY_PATH."
        ),
    ),
    (
        (
            r"\binvalid device (?:ordinal|id)\b|\bdevice\S* (?:is|are|is/are) (?:busy|unavailable)|busy or unavailable"
            r"|\bresources are busy\b|No CUDA GPUs are available|no CUDA-capable device|\bno valid device\b"
            r"|NPU function error: \S*(?:SetDevice|GetDeviceCount)|error code is (?:107001|107002|207004|507033)\b"
            r"|Failed to start the device|input visible devices|exclusive (?:process|mode)"
        ),
        (
            "Check ASCEND_RT_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES, and which process holds the device: "
            "`npu-smi info` or `nvidia-smi`."
        ),
    ),
)
"""Whole phrases: torch_npu's name stands in the path of most of its errors, and "busy" in those of file systems."""


@check(severity=ERROR, area="smoke")
def smoke_rank_not_started(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """Every rank starts: its interpreter, its import of torch, its device.

    ## Why it matters
    A rank that does not start never reaches the rendezvous. All others wait for it until a timeout, and its message
    names the store, not the rank.

    ## What to do
    {remedy}

    Try it on {host} by hand, with the job's own interpreter and environment: `{python} -c "import torch,
    torch.distributed; print(torch.__version__)"`. No module named torch: install it for that interpreter (`{python} -m
    pip install torch`; on this machine `pip install 'cluster-doctor[smoke]'`), or name the job's own with `--python`.
    An error of torch_npu: CANN's environment is not set (`source /usr/local/Ascend/ascend-toolkit/set_env.sh`), or the
    driver's libraries are not on LD_LIBRARY_PATH. A device that cannot be set: check `npu-smi info` or `nvidia-smi`,
    ASCEND_RT_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES, and which process holds it.

    ## Source
    Each host's agent starts the interpreter, which reports what it has imported; a rank takes its device before it
    joins. An interpreter that ends before that, with any exit status, or that neither runs nor reads anything for
    60 s, has not started. One that is slow has time until the budget ends (`smoke-budget-spent`). This verdict can be
    wrong about an import that sleeps for more than 60 s.
    """
    yield from failure_findings(
        run,
        "{who} did not start: {text}",
        "not-started",
        remedies=REMEDIES,
        fix_of=fix_of,
        python=run.plan.python or "python3",
    )
