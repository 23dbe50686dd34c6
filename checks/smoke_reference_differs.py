from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import OTHER_DATA, device_outliers
from doctor.smoke.numerics.defect import ranks_on
from doctor.smoke.results.environments import lacking_numpy


@check(severity=ERROR, area="smoke")
def smoke_reference_differs(
    run: SmokeRun, training: PerHost[SmokeTraining], started: PerHost[SmokeStart] | None
) -> Iterator[Finding]:
    """The reference run gives the same bits on all devices of a kind and a code path.

    ## Why it matters
    Every rank trains the same small model by itself, without any other rank. If the result of one differs from that of
    ranks on the same kind of device, its device multiplies wrongly, or its library or settings differ. Such a rank
    corrupts every sum that it takes part in, and raises no error.

    ## What to do
    Run `doctor smoke {all_hosts}` again. If the same rank differs again: `for i in $(seq 0 7); do npu-smi info -t ecc
    -i $i; done` or `nvidia-smi -q -d ECC,ROW_REMAPPER` on {host} shows memory errors. Compare driver, firmware, torch
    and the environment (NVIDIA_TF32_OVERRIDE, TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, OMP_NUM_THREADS, MKL settings) on
    {host} with the others'. If those are equal, take its device out of the job and have it tested.

    ## Source
    Losses of each step and digests of all parameters, before and after, of a training that uses one rank alone. Ranks
    on one kind of accelerator, and on the CPUs of one host, are compared bit for bit if their code path is one (device
    model, instructions in use, oneDNN and MKL variables, torch); different ones to 1e-4. A product of float32 that is
    100 times as far off as that of another such rank differs, too. A host without NumPy draws other masks and is no
    device that differs (`smoke-numpy-missing`).
    Its first step is computed twice: on a CPU the second gradient and the second losses have the same bits, on an
    accelerator, which may add in any order, they are within 1e-4 of their norm. Where a layout is off, all its steps
    are computed again behind the last layout, and are within 1e-4. So is each rank's part of the first 64 steps of
    every layout, with what the other ranks had sent it then in place of collectives: what differs, that rank alone has
    computed. And so are losses of the first step by the formulas of the model, and in data parallelism the gradient
    that the rank gives to the others, in double precision, without products of matrices and without the batch's own
    tensors, and each update of the parameters by its gradient (within 1e-4; 1e-2 on an accelerator): of two ranks that
    differ they tell which is wrong. An error that strikes each time alike, and no such loss, shows only by the other
    ranks. This verdict can be wrong where a library chooses other instructions from one call to the next.
    """
    lacking = lacking_numpy(started or {})
    for outlier, has_other_data in device_outliers(run.plan, training, started):
        template = "{who}: the reference run ends with other numbers than on {agree}, on {kind}: {how}"
        if not outlier.agreeing:
            template = "the reference runs of {who} end with different numbers, on {kind}: {how}; there is no majority"
        if outlier.unrepeated == "repeated":
            template = (
                "{who}: the reference run does not repeat: a step computed again, on the same input and without any "
                "other rank, gives another gradient or loss, by {share} of it"
            )
        if outlier.unrepeated == "layout":
            template = (
                "{who}: the training does not repeat: a step of a layout computed again by that rank alone, with what "
                "the other ranks had sent it, gives other numbers, by {share} of them"
            )
        if outlier.unrepeated == "formula":
            template = (
                "{who}: the training has other losses or gradients than the formulas of its model in double precision, "
                "by {share} of them; those of the other ranks have not"
            )
        finding = Finding(
            template,
            hosts=run.hosts(outlier.ranks),
            who=ranks_on(run.plan, outlier.ranks),
            agree=ranks_on(run.plan, outlier.agreeing),
            kind=outlier.kind,
            how=outlier.explanation,
            ranks=list(outlier.ranks),
            share=float(f"{outlier.share:.2g}"),
            tie=not outlier.agreeing,
        )
        lacks, others_lack = (
            {host in lacking for host in run.hosts(ranks)} for ranks in (outlier.ranks, outlier.agreeing)
        )
        # Masks are drawn with NumPy where it is.
        other_masks = not outlier.unrepeated and lacks | others_lack == {True, False} and lacks.isdisjoint(others_lack)
        yield finding.because_of(*OTHER_DATA * has_other_data, *["smoke-numpy-missing"] * other_masks)
