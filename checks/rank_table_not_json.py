import shlex
from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job import NotARankTable, RankTableFile, limit_items
from doctor.job.rank_table.strict_json import parse_json, repeated_keys


@check(severity=ERROR, area="ranks")
def rank_table_not_json(file: RankTableFile) -> Iterator[Finding]:
    """The rank table can be read and is plain JSON.

    ## Why it matters
    HCCL stops at the first character that is not JSON (EI0004). torch_npu ignores a file that it cannot open, and
    starts without it. Of a repeated key, only the last value counts.

    ## What to do
    {remedy}

    `python3 -m json.tool {path}` shows the same place. Printed examples carry `//` comments, and the MindSpore tutorial
    a comma before a closing bracket: neither is JSON. Save the file as UTF-8 without a byte order mark.
    `cp -p {path} {path}.old && doctor rank-table {all_hosts} --out {path}` writes the table anew from the hosts.

    ## Source
    HCOMM `topoinfo_ranktableParser.cc` (ReadFile); MindSpore 0.x tutorial, distributed training on Ascend.
    """
    quoted = shlex.quote(file.path)
    if file.error:
        remedy = filled("`namei -l {0}` shows on each host whether the file is there, and who may read it.", quoted)
        yield Finding("{path} cannot be read: {error}", path=file.path, error=file.error, remedy=remedy)
        return
    if file.text.startswith("\ufeff"):
        yield Finding(
            "{path} begins with a byte order mark, which Python's JSON reader, and so most launchers, refuse",
            path=file.path,
            remedy=filled("Remove the mark: `sed -i '1s/^\\xEF\\xBB\\xBF//' {0}`.", quoted),
        )
    if "\ufffd" in file.text:
        line = file.text.count("\n", 0, file.text.index("\ufffd")) + 1
        remedy = filled(
            "Save it as UTF-8; where it was written in GBK: `iconv -f GBK -t UTF-8 {0} >{1}.utf8`.", quoted, quoted
        )
        yield Finding("{path}, line {line}: bytes that are not UTF-8", path=file.path, line=line, remedy=remedy)
    try:
        twice = repeated_keys(parse_json(file.text))
    except NotARankTable as why:
        near = {"observed": why.excerpt} if why.excerpt else {}
        yield Finding("{path}, {why}", path=file.path, why=str(why), **near)
        return
    if twice:
        yield Finding(
            "{path} has repeated keys in one object: {keys}",
            path=file.path,
            keys=limit_items(twice),
            remedy="Keep one of each key: of the others, readers take the last value and drop the rest.",
        )
