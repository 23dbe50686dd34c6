from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.kernel_log import KernelLog


@check(severity=WARNING, area="memory")
def file_server_silent_logged(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no file server that stopped answering.

    ## Why it matters
    Each process that reads from it hangs in the kernel, also one that is to be ended. Ranks come late to every step,
    and a job ends with a timeout of its collectives.

    ## What to do
    On {host}: `dmesg | grep -iE 'nfs: server|lustre'`, `findmnt -rno TARGET -t nfs,nfs4,lustre | xargs -rn1 timeout 5
    stat -f` (a mount that does not answer prints nothing). Look at the server {server}, and at the network to it;
    `nfsstat -m` and `lctl get_param *.*.import` show the connections.

    ## Source
    Messages of the kernel: net/sunrpc/clnt.c "nfs: server ... not responding", fs/nfs/nfs4state.c "Lock reclaim
    failed"; of Lustre's client (lustre/ptlrpc/import.c) "Connection to ... was lost", "This client was evicted". A
    server that has answered since ("OK", "Connection restored") is left out.
    """
    for fault in log.faults("file-server-silent-logged"):
        yield Finding(
            "the file server {server} does not answer, {count} messages in 24 hours, last {age}: {text}",
            server=fault.device,
            **fault.values,
        )
