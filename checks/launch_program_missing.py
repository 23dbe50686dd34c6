from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.job_paths import JobProgram


@check(severity=ERROR, area="ranks")
def launch_program_missing(programs: PerHost[JobProgram]) -> Iterator[Finding]:
    """The program that the launch line starts is on every host.

    ## Why it matters
    The ranks of a host without the program end at once with "can't open file". The ranks of the other hosts wait for
    them in `init_process_group`, until its timeout.

    ## What to do
    - Some: on {host}, `findmnt -T {path}` names the file system that should hold the program. Where it is a shared one,
      mount it there as on {holder}. Else copy the program: `rsync -a --mkpath {holder}:{path} {path}`.
    - All: correct the path in the launch line, or run the command in the folder of the program.

    ## Source
    The program of the launch line after `--`: an absolute path; or a relative one where all ranks start in the folder
    of this command: a launch on this host alone, or by srun, mpirun or deepspeed without an option for another folder.
    What starts in a container, is a module or is found on the PATH is not looked for.
    """
    missing = [host for host, program in programs.items() if program.state == "missing"]
    if missing:
        holder = next((host for host, program in programs.items() if program.state == "there"), None)
        yield Finding(
            "{path} is {observed}",
            hosts=missing,
            path=programs[missing[0]].path,
            observed="not there",
            expected="the program of the launch line",
            holder=holder,
            case="Some" if holder else "All",
        )
