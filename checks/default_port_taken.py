from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import Listeners
from doctor.job import LaunchConfig
from doctor.job.variables import MINDSPORE_PORT, RENDEZVOUS_PORT


@check(severity=WARNING, area="kernel")
def default_port_taken(listeners: Listeners, npus: NpuInventory | None, launch: LaunchConfig) -> Iterator[Finding]:
    """The ports that a job takes where no port is given are free.

    ## Why it matters
    A job without MASTER_PORT uses the default port. Where another program holds it, the job fails with "Address already
    in use" on the host of rank 0. Where that is the store of another job, ranks join the wrong job or wait forever.

    ## What to do
    Where {host} never has rank 0, nothing has to be done. Else `ss -tlnp "sport = :{port}"` there shows who has the
    port. Or choose another port for the job, on all hosts: {setting}.

    - Leftover: if it is left of an earlier job, `kill {pid}` ends it.
    - Service: it belongs to the host itself; leave it alone.

    ## Source
    PyTorch: 29500 is MASTER_PORT's default in torchrun, 29400 that of `--rdzv-endpoint`; MindSpore: 8118 is
    MS_SCHED_PORT's, judged on hosts with NPUs. Where MASTER_ADDR is given, master-port-taken judges its port on its
    host. If it is the running job itself, nothing is wrong.
    """
    if launch.env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise Skip("started by torchrun: its agent listens there for the ranks")
    ports = []
    if launch.framework != "mindspore":
        ports += [] if launch.master_addr else [(launch.master_port, launch.port_option("{0}"))]
        ports += [(RENDEZVOUS_PORT, "`torchrun --rdzv-endpoint <host of rank 0>:{0}`")]
    if launch.framework == "mindspore" or (npus and launch.framework != "torch"):
        ports += [] if launch.master_addr else [(MINDSPORE_PORT, "`export MS_SCHED_PORT={0}`")]
    for port, setting in dict(ports).items():
        holders = listeners.holders(port)
        if holders:
            yield Finding(
                "port {port}, a default of job launchers, is taken by {owner}",
                **holders[0].values,
                setting=filled(setting, listeners.free_behind(port)),
                observed="taken",
                expected="a free port",
            )
    if not ports:
        raise Skip("MS_SCHED_HOST is given: master-port-taken judges its port")
