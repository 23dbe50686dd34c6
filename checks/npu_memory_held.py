from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.npu_table import NpuTable
from doctor.facts.reported_value import held_memory


@check(severity=WARNING, area="devices")
def npu_memory_held(table: NpuTable) -> Iterator[Finding]:
    """HBM that is in use belongs to a process that npu-smi names.

    ## Why it matters
    HBM can be in use although the list shows no process: by a process of another container, or by one that died while
    its memory was not released. The next job runs out of memory on this NPU.

    ## What to do
    On the machine itself, outside of containers: `fuser -v /dev/davinci{npu}` and `npu-smi info -t proc-mem -i {card}
    -c {chip}`. With no owner: reset the NPU while no job runs, `npu-smi set -t reset -i {card} -c {chip} -m 1`.

    ## Source
    HBM-Usage and the list of processes of `npu-smi info`. An idle NPU shows 3 to 9 % of its HBM in published tables of
    drivers 23 to 26, 2.8 to 4.8 GB of 32 to 96 GB; the limit of 12 % is our own, Huawei publishes none.
    """
    if table.process_problem:
        return  # npu-busy reports that the list is not complete
    named = {(process.npu, process.chip) for process in table.processes}
    for state in table.npus:
        if state.hbm_used is None or not state.hbm_total or (state.npu, state.chip) in named:
            continue
        if held := held_memory("MB", state.hbm_used, state.hbm_total):
            yield Finding(
                "NPU {npu} has {observed} of HBM in use and no process; expected at most {expected}",
                npu=state.device,
                card=state.npu,
                chip=state.chip,
                **held,
            )
