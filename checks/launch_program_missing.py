from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.job_paths import JobProgram
from doctor.job import LaunchConfig


@check(severity=ERROR, area="ranks")
def launch_program_missing(programs: PerHost[JobProgram], launch: LaunchConfig) -> Iterator[Finding]:
    """The program that the launch line starts, and the configurations that it names, are on every host.

    ## Why it matters
    The ranks of a host without the program end at once with "can't open file". The ranks of the other hosts wait for
    them in `init_process_group`, until its timeout.

    ## What to do
    - Some: on {host}, `findmnt -T {path}` names the file system that should hold the program. Where it is a shared one,
      mount it there as on {holder}. Else copy the program: `rsync -a --mkpath {holder}:{path} {path}`.
    - All: correct the path in the launch line, or run the command in the folder that holds it.

    ## Source
    The program of the launch line after `--`: an absolute path; or a relative one where all ranks start in the folder
    of this command: a launch on this host alone, or by srun, mpirun or deepspeed without an option for another folder.
    The same for configurations in JSON, YAML and TOML; one of a relative path that no host has is a warning, as a
    program may look for it in a folder of its own. Of a job script only absolute paths are looked for. What starts in a
    container, is a module or is found on the PATH is not looked for.
    """
    for path in sorted({path for program in programs.values() for path in program.states}):
        states = {host: program.states[path] for host, program in programs.items() if path in program.states}
        holder = next((host for host, state in states.items() if state == "there"), None)
        is_program = any(program.path == path for program in programs.values())
        for lacking, observed in (("missing", "not there"), ("folder", "a folder without __main__.py")):
            missing = [host for host, state in states.items() if state == lacking]
            if not missing:
                continue
            yield Finding(
                "{path} is {observed}",
                hosts=missing,
                path=path,
                observed=observed,
                expected="the program of the launch line" if is_program else "a configuration of the launch line",
                holder=holder,
                case="Some" if holder else "All",
            ).as_warning(not (is_program or holder or path in launch.launch_line))
