from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.engine.version_matrix import known_bad
from doctor.facts.gpu import GpuInventory
from doctor.facts.python_env import PythonEnv


@check(severity=WARNING, area="versions")
def known_bad_version(python: PythonEnv, gpus: GpuInventory | None) -> Iterator[Finding]:
    """The NCCL that the job uses has no published fault.

    ## Why it matters
    Its maker has published the fault, and nothing in the job's log names it: a job that hangs or gives wrong sums looks
    like one with a bad link.

    ## What to do
    Install {component} {expected} or newer for the job on {host}. {instead}

    ## Source
    The release notes of NCCL and issues of PyTorch, which doctor/engine/known_bad_versions.toml names with each
    version. A fault of some GPUs alone is looked for where nvidia-smi lists such GPUs.
    """
    if not python.nccl:
        raise Skip("the job's interpreter has no package of NCCL")
    names = [gpu.name for gpu in gpus.gpus] if gpus else []
    for row in known_bad("nccl", python.nccl[1], names):
        yield Finding(
            "NCCL {observed}: {fault}; fixed in {expected}",
            component="NCCL",
            observed=python.nccl[1],
            expected=row.fixed,
            fault=row.fault,
            instead=row.instead and filled("Until then: `{0}`.", row.instead),
            source=row.source,
        )
