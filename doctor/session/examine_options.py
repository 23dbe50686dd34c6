"""What an examination of hosts is asked to do, and how it reaches them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.record import LaunchOptions
from doctor.job.launch_line.logins import LauncherLogin
from doctor.job.training import TrainingLaunch
from doctor.session.replay import EvaluationLimit
from doctor.transport.options import SshOptions

if TYPE_CHECKING:
    from doctor.net.plan import NetOptions
    from doctor.smoke.plan import SmokeOptions
    from doctor.transport import Transport


class ExamineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a check, and its time limits."""

    transport: str = "ssh"
    ssh: SshOptions = SshOptions()
    sudo: bool = False
    within: str = ""
    """Command prefix that enters the job's container: ``docker exec -i NAME``."""
    way: Transport | None = None
    """The open way to the hosts, instead of the transport of that name."""
    timeout: float = 60.0
    """Seconds for a host's answer, once connected."""
    budget: float = 0.0
    """Seconds for the visits of all hosts, the smoke run included; 0 is none."""
    evaluation: EvaluationLimit = EvaluationLimit()
    """When the evaluation that follows must have ended."""
    workers: int = 0
    """Hosts at once; 0 is as many as the limit on open files allows, up to 256."""
    launch: LaunchOptions = LaunchOptions()
    """Job settings of the command line; `examine` adds those of the environment."""
    gates_job: bool = False
    """The job starts from this process, in its environment and working folder."""
    net: NetOptions | None = None
    """Options of the network test between the hosts; None makes none."""
    smoke: SmokeOptions | None = None
    """Options of the smoke run that follows; None makes none."""
    paths: tuple[str, ...] = ()
    """Files and folders whose contents are compared among hosts: absolute."""
    training: TrainingLaunch | None = None
    """The job's launch and configuration, where a launch line or files were given."""
    login: LauncherLogin | None = None
    """How the launcher of the launch line reaches the other hosts; None: not over SSH, or that is not known."""
    job_environ: Mapping[str, str] = {}
    """Of a launch line, a file or a process: all that the job has; empty: the caller's."""
    by_login: bool = False
    """A shell on each host starts the ranks: what its start-up files set is in their environment."""
    import_folder: str = ""
    """The folder that the job's Python looks into first: absolute; empty where no launch line tells it."""
    program: str = ""
    """The file that the launch line starts on each host: empty where it is not known, relative where each host
    chooses the folder."""
    is_started: bool = False
    """The program is run itself, and not read by an interpreter."""
    files: tuple[str, ...] = ()
    """Configurations of its launch line, as ``program``."""
    inputs: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    """What the program reads, and what it writes to, as ``program``."""
    module: tuple[str, ...] = ()
    """The command that starts a module, its name, and the folder in which all ranks start it."""
    output: str = ""
    """The folder that the launcher makes for logs, as ``program``."""
    counts_gpus: bool = False
    """The launch line starts a rank for each GPU."""
    after_reboot: bool = False
    """Read what the hosts load when they start, and evaluate the checks as after a reboot."""
    reads_settings: bool = False
    """Also read every setting and version that `doctor changes` compares."""
    code: Mapping[str, str] | None = None
    """See `doctor.session.replay.Examination`."""

    @property
    def likely_paths(self) -> list[str]:
        """Relative paths of a launch line that a shell on each host starts, perhaps in another folder than this one."""
        paths = (self.program, self.output, *self.files, *self.inputs, *self.results, *self.module[2:3])
        return [path for path in paths if self.by_login and path and not path.startswith("/")]

    @property
    def connection_words(self) -> tuple[str, ...]:
        """The options by which another command reaches the same hosts; a password is none of them."""
        ssh = self.ssh
        options = [
            ("--transport", self.transport if self.transport != "ssh" else ""),
            ("-F", ssh.config),
            ("-l", ssh.user),
            ("-p", ssh.port),
            *(("-i", file) for file in ssh.identity),
            ("--gateways", ssh.gateways),
            ("--within", self.within),
        ]
        flags = {"--ask-pass": ssh.password, "--accept-new": ssh.accept_new, "--sudo": self.sudo}
        given = [word for option, value in options if value for word in (option, str(value))]
        return (*given, *(flag for flag, is_set in flags.items() if is_set))
