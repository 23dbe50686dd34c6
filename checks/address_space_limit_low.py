from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuCards
from doctor.facts.limits import ADDRESS_SPACE, ANY, DATA, OTHERS, STACK, ResourceLimits, low_limit
from doctor.job import LaunchConfig


@check(severity=ERROR, area="memory")
def address_space_limit_low(limits: ResourceLimits, gpus: GpuCards | None, launch: LaunchConfig) -> Iterator[Finding]:
    """A process of the job may have as much address space, data and stack as it needs.

    ## Why it matters
    A rank reserves far more address space than it uses memory: for libraries, for the stack of each thread, and with a
    GPU for all that it can address. At the limit an import ends with "MemoryError" or "failed to map segment from
    shared object", a thread with "Resource temporarily unavailable", CUDA with "out of memory".

    ## What to do
    - Job: in the script that starts the job, `ulimit -{letter} unlimited`.
    - Host: on {host}, `grep -rnE 'ulimit .*-{letter}|^[^#]*[[:space:]]{item}[[:space:]]' /etc/profile /etc/profile.d
      /etc/security ~/.bashrc ~/.profile` shows what sets the limit: delete that line, then log in again. Of a service:
      `LimitAS=infinity`, `LimitDATA=infinity` or `LimitSTACK=infinity`. Of a job of Grid Engine: a larger h_vmem.

    ## In a container
    The container of {host} has the limits of its runtime. On its machine: `LimitAS=infinity`, `LimitDATA=infinity` or
    `LimitSTACK=infinity` for the service of containerd or Docker, then start the container again.

    ## Source
    setrlimit(2), RLIMIT_AS, RLIMIT_DATA and RLIMIT_STACK; queue_conf(5) of Grid Engine, h_vmem. Measured with PyTorch
    2.13, Gloo and torchrun on two CPUs: a rank lives with 830 MiB of address space and 293 MiB of data, and none does
    with 781 and 268; more threads need more. So less than 800 MiB, 260 MiB and 64 KiB of stack are errors, and less
    than 4 GiB, or 512 KiB of stack, is a warning. With a GPU any limit of address space is a warning: CUDA maps the
    memory of all GPUs and of the host into one range (NVIDIA, CUDA C++ Programming Guide, "Unified Virtual Address
    Space"), and 16 GiB were too few in https://github.com/Netflix/vmaf/issues/1381.
    """
    now = limits.of_job(launch).others
    for name in (ADDRESS_SPACE, DATA, STACK):
        if low := low_limit(name, now[name], ANY if name == ADDRESS_SPACE and gpus and gpus.pci else 0):
            yield Finding(
                "the {limited} of a process is limited to {observed}; expected no limit",
                limited=name,
                letter=OTHERS[name][0],
                item=OTHERS[name][1],
                **low[1],
            ).as_warning(low[0])
