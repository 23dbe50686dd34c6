from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.python_env import TorchImport, import_cause, missing_library


@check(severity=WARNING, area="versions")
def cann_env_not_set(torch: TorchImport) -> Iterator[Finding]:
    """torch_npu loads after a plain login, without sourcing a script.

    ## Why it matters
    Ranks that a launcher starts over SSH (mpirun, pdsh, DeepSpeed, Slurm's prolog) do not read /etc/profile, and read
    only the first lines of ~/.bashrc. It works in a terminal, and the ranks on the other hosts cannot import torch.

    ## What to do
    Begin the job's script with `source {set_env}`. Or make it the first line of ~/.bashrc on {host}, before the part
    that returns in non-interactive shells: `echo 'source {set_env}' | cat - $(ls ~/.bashrc 2>/dev/null) >
    ~/.bashrc.new && mv ~/.bashrc.new ~/.bashrc`.

    ## Source
    `import torch` was tried as after a plain login, where it failed, and again with set_env.sh sourced, where it went
    well. sshd starts commands in a shell that is neither a login shell nor interactive (manual of bash).
    """
    if import_cause(torch.error) == "cann" and not torch.error_with_set_env:
        yield Finding(
            "import torch succeeds only after sourcing {set_env}",
            set_env=torch.set_env,
            library=missing_library(torch.error) or "its environment",
            observed=torch.error,
            expected="import torch succeeds",
        )
