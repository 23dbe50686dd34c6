from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_parameters_diverge(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    """Parameters that several ranks hold stay equal.

    ## Why it matters
    Data-parallel replicas, and the tensors that tensor parallelism keeps whole (norms, embeddings), are updated by each
    rank for itself and must come out the same. Once they differ they stay different, and the loss does not show it.

    ## What to do
    If only one rank differs, check its device on {host}: `for i in $(seq 0 7); do npu-smi info -t ecc -i $i; done` or
    `nvidia-smi -q -d ECC,ROW_REMAPPER` for memory errors, `doctor check {all_hosts}` for another library, `env | grep
    -iE 'tf32|deterministic'` for another setting. If all ranks of a tensor-parallel group differ: sum the gradients of
    unsplit tensors over the group in the backward pass. Seed the dropout of unsplit activations alike on its ranks.

    ## Source
    Every rank reports the digest of its parameters after each step. Ranks of one code path (device model, instructions
    in use, oneDNN and MKL variables, torch) took the same gradient with the same arithmetic, so they are compared bit
    for bit. Ranks of different code paths add in another order: each is compared with its own reference run, at 1e-4 of
    the norm of the parameters, and so is what one rank alone holds and updates with a right gradient. Where others send
    a rank what it holds (the shards of ZeRO-1, the sums of tensor parallelism), it may have changed on its way, and who
    sends it is named beside the rank. This verdict can be wrong where a difference of code is not told, such as two
    builds of one version of torch, and it does not see a smaller error where the code paths differ.
    """
    yield from findings("smoke-parameters-diverge", run, training)
