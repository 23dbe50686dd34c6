from collections.abc import Iterator

from doctor import WARNING, Finding, bytes_text, check
from doctor.facts.memory import MemoryCommitment

STRICT = 2
USABLE_SHARE = 0.9


@check(severity=WARNING, area="memory")
def overcommit_forbidden(memory: MemoryCommitment) -> Iterator[Finding]:
    """Programs can get the memory that is free: vm.overcommit_memory does not limit allocations.

    ## Why it matters
    With vm.overcommit_memory=2 the kernel counts what is reserved, not what is used. A rank reserves far more than it
    uses, and a fork for each data loader worker counts the whole rank again. It dies of "Cannot allocate memory"
    (errno 12) while `free` shows free memory.

    ## What to do
    On {host}: `sysctl -w vm.overcommit_memory=0 && echo "vm.overcommit_memory = 0" >>
    /etc/sysctl.d/99-zz-cluster.conf`. Where the strict mode is meant, raise vm.overcommit_ratio until CommitLimit in
    /proc/meminfo leaves room for all ranks and their workers.

    ## In a container
    The setting is that of the machine on which the container of {host} runs. There, as root: `sysctl -w
    vm.overcommit_memory=0`, and the same in /etc/sysctl.d.

    ## Source
    Linux, Documentation/mm/overcommit-accounting.rst: mode 2 refuses what exceeds swap and a share of memory, by
    default half; private writable mappings count in full in each process. That nine tenths of the available memory
    are enough is ours.
    """
    left = max(0, memory.limit - memory.committed)
    if memory.mode == STRICT and left < USABLE_SHARE * memory.available:
        yield Finding(
            "vm.overcommit_memory is {mode}: programs can get {observed} more, although {expected} are available",
            mode=memory.mode,
            observed=bytes_text(left),
            expected=bytes_text(memory.available),
            setting="vm.overcommit_memory",
        )
