from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.job import NotARankTable, RankTableFile, limit_items
from doctor.job.rank_table.other_forms import form_violations, other_form
from doctor.job.rank_table.strict_json import parse_json


@check(severity=ERROR, area="ranks")
def rank_table_form_invalid(file: RankTableFile) -> Iterator[Finding]:
    """A rank table of version 2.0, of vLLM or of MindIE follows the rules of its form.

    ## Why it matters
    HCCL of the 950 family stops at a rank_count that is not the number of ranks, and at ranks that are missing or
    repeated. The serving stacks start without such a check, and hang when a device is listed twice or an address is not
    one.

    ## What to do
    At {places} the form needs: {expected}. Correct it there; `python3 -m json.tool {rank_table}` shows whether the file
    still is JSON. Or write the table again with the tool that made it: the ascend-operator of MindCluster for 2.0 and
    MindIE, `gen_ranktable.sh` of vllm-ascend.

    ## Source
    2.0: HCCL documentation, rank_table_config_a5.md (github.com/hicann/hccl), and the check of rank_count in HCOMM
    `rank_info_detect`. vLLM: examples/disaggregated_prefill_v1/gen_ranktable.py of github.com/vllm-project/vllm-ascend.
    MindIE: the RankTableLoader of its controller and rank_table parsers of github.com/Ascend/msit.
    """
    try:
        tree = parse_json(file.text)
    except NotARankTable as why:
        raise Skip(str(why)) from None
    form = other_form(tree)
    if form is None:
        raise Skip("the table has the form of HCCL 1.x, which other checks cover")
    violations = form_violations(tree, form)
    for expected in dict.fromkeys(violation.expected for violation in violations):
        places = [violation for violation in violations if violation.expected == expected]
        yield Finding(
            "the {form} table breaks a rule of its form at {places}",
            form=form,
            places=limit_items((violation.path for violation in places), 4),
            observed=limit_items((violation.observed for violation in places), 3),
            expected=expected,
        )
