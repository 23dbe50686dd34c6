import hashlib
import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.facts.root_info import RankTableOnHost
from doctor.job import LaunchConfig, RankTableFile, limit_items

CAUSES = {"rank-table-path-relative": ("path",)}


@check(severity=ERROR, area="ranks", follows_from=CAUSES)
def rank_table_differs_between_hosts(
    file: RankTableFile, launch: LaunchConfig, copies: PerHost[RankTableOnHost]
) -> Iterator[Finding]:
    """All hosts have the same rank table, and it is the one that was checked.

    ## Why it matters
    Each rank reads its own copy. With another one it waits for peers that do not exist, or takes another rank's number.
    Under torch_npu, a host without the file starts in another way, and its ranks never connect to the others.

    ## What to do
    Copy the file that was checked to the same path on {who}: `{copy}`. Tables joined by `merge_hccl.py` on each host
    differ with the order of the arguments.

    ## Source
    torch_npu `ProcessGroupHCCL` (createHCCLCommEx); MindSpore models `merge_hccl.py`.
    """
    without = [host for host, copy in copies.items() if not copy.present]
    if len(without) == len(copies) and not launch.rank_table_variable:
        raise Skip(filled("no host has {0}: it was given only to be checked", file.path))
    if without:
        yield Finding(
            "{path} does not exist on {who}",
            hosts=without,
            path=file.path,
            who=limit_items(without),
            copy=_copy(file.path, without),
        )
    holders: dict[str, list[str]] = defaultdict(list)
    for host, copy in copies.items():
        if copy.present:
            holders[copy.sha256].append(host)
    exact = not file.error and "\ufffd" not in file.text
    judged = hashlib.sha256(file.text.encode("utf-8", "surrogatepass")).hexdigest() if exact else ""
    right = judged or max(holders, key=lambda sha: (len(holders[sha]), sha), default="")
    for sha, hosts in sorted(holders.items(), key=lambda item: item[1]):
        if sha != right:
            template = "{who} has another rank table than the one that was checked"
            yield Finding(
                template,
                hosts=hosts,
                path=file.path,
                who=limit_items(hosts),
                copy=_copy(file.path, hosts),
                observed=sha[:12],
                expected=right[:12],
            )


def _copy(path: str, hosts: Sequence[str]) -> str:
    """The command that copies a file to the same path on other hosts."""
    word = shlex.quote(path)
    return f"for host in {' '.join(map(shlex.quote, hosts))}; do scp {word} $host:{word}; done"
