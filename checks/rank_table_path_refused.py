from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.job import RankTableFile


@check(severity=ERROR, area="ranks")
def rank_table_path_refused(file: RankTableFile) -> Iterator[Finding]:
    """The rank table's name ends in .json, and the file is not a symbolic link.

    ## Why it matters
    HCCL refuses a path that does not end in `.json`, or contains `.json` earlier too (EI0004). torch_npu does not
    follow a symbolic link: it starts as if there were no table.

    ## What to do
    `cp -L {path} /etc/rank_table.json` on every host; one that does not have the file gets it from here: `scp {path}
    <host>:/etc/rank_table.json`. Then `export RANK_TABLE_FILE=/etc/rank_table.json` where the job is launched.

    ## Source
    HCOMM `topoinfo_ranktableParser.cc` (CheckFilePath); torch_npu `ProcessGroupHCCL` (createHCCLCommEx).
    """
    place = file.path.find(".json")
    if not file.path.endswith(".json"):
        yield Finding("the name of {path} does not end in .json", path=file.path)
    elif place + len(".json") != len(file.path):
        yield Finding("{path} contains .json before its end", path=file.path)
    if file.link_target:
        yield Finding("{path} is a symbolic link to {target}", path=file.path, target=file.link_target)
