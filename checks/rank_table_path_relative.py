from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.job import LaunchConfig


@check(severity=WARNING, area="ranks")
def rank_table_path_relative(launch: LaunchConfig) -> Iterator[Finding]:
    """The variable that names the rank table holds an absolute path.

    ## Why it matters
    A relative path names another file as soon as a launch script changes its directory, as the MindSpore tutorial's
    own does (`cd ./device$i`). torch_npu then starts without the table and reports nothing; MindSpore fails.

    ## What to do
    On the host where it is set, in the folder of the job: `export {variable}=$(realpath {path})`.

    ## Source
    torch_npu `ProcessGroupHCCL` (a file that cannot be opened is passed over); MindSpore tutorial, run.sh.
    """
    if not launch.rank_table_variable:
        raise Skip("no variable names a rank table")
    if not launch.rank_table_path.startswith("/"):
        observed = f"{launch.rank_table_variable}={launch.rank_table_path}"
        yield Finding(
            "{variable} is relative",
            variable=launch.rank_table_variable,
            path=launch.rank_table_path,
            observed=observed,
            expected="a path that begins with /",
        )
