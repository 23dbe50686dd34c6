from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.job import RankTable


@check(severity=ERROR, area="ranks")
def rank_table_not_completed(table: RankTable) -> Iterator[Finding]:
    """The rank table's status is completed.

    ## Why it matters
    With any other status HCCL reads the file again every second, for half an hour, before it gives up. The job hangs
    without a message.

    ## What to do
    A table written by hand: `sed -i.bak -E 's/"status" *: *"[^"]*"/"status": "completed"/' {path}`. A cluster operator
    writes `initializing` first and `completed` when all pods have an address: `kubectl get pods -o wide` shows which
    one has none, `kubectl describe pod <pod>` why.

    ## Source
    HCOMM `topoinfo_ranktableParser.cc` (LoadFile, RefreshStatus); MindCluster, hccl.json description.
    """
    if table.status and table.status != "completed":
        yield Finding(
            "the status of {path} is not completed", path=table.path, observed=table.status, expected="completed"
        )
    elif not table.status:
        table.require_fields("status")
        yield Finding("the status of {path} is empty", path=table.path, observed='""', expected="completed")
