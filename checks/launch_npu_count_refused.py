from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.npu import NpuProduct
from doctor.job import LaunchConfig, product_family
from doctor.job.training import NotDecided, NotGiven, Rule, TrainingLaunch, View, apply_rules


@check(severity=ERROR, area="training")
def launch_npu_count_refused(
    training: TrainingLaunch, launch: LaunchConfig, products: PerHost[NpuProduct] | None
) -> Iterator[Finding]:
    """On the A1 family the launch uses 1, 2, 4 or 8 NPUs of each host, and 2 or 4 of one ring.

    ## Why it matters
    The eight NPUs of an A1 host are two rings, 0 to 3 and 4 to 7. HCCL forms no group of two or four NPUs that crosses
    them, nor one of 3, 5, 6 or 7. A2 and A3 have no such rule.

    ## What to do
    Change {where}: start 1, 2, 4 or 8 ranks on each host; give two or four ranks the NPUs 0 to 3, or 4 to 7.

    ## Source
    CANN documentation, precautions of distributed training for the Atlas Training Series
    (https://www.hiascend.com/document/detail/en/TensorFlowCommercial/800/migration/tfmigr1/tfmigr1_000028.html);
    MindSpore models, hccl_tools.py.
    """
    try:
        family = product_family(launch, products)
    except Unreadable:
        family = ""
    if family not in ("A1", ""):
        raise Skip("this rule applies to the A1 family only")

    def decided(rule: Rule) -> Rule:
        """Without a product, what A1 would refuse is not decided for NPUs, and does not apply to other devices."""

        def rule_of_product(view: View) -> Iterator[Finding]:
            try:
                refused = list(rule(view))
            except NotDecided:
                if not family and not _uses_npus(view):
                    raise NotGiven("product") from None
                raise
            if family:
                yield from refused
            elif refused and _uses_npus(view):
                raise NotDecided(
                    filled("{0}: depends on the product; name it with --product", refused[0].values["observed"])
                )
            elif refused:
                raise NotGiven("product")

        return rule_of_product

    yield from apply_rules(training, decided(_count), decided(_ring))


def _uses_npus(view: View) -> bool:
    backends = [mark.text for script in view.job.scripts for mark in script.all("init")]
    visible = view.job.launch.get("visible")
    return (
        view.text("launcher") == "msrun"
        or view.framework == "mindformers"
        or any(backend.endswith("hccl") for backend in backends)
        or (visible is not None and visible.option.startswith("ASCEND"))
    )


def _count(view: View) -> Iterator[Finding]:
    ranks = view.number("ranks_per_node")
    if ranks not in (1, 2, 4, 8):
        yield Finding(
            "{ranks} ranks on each host at {where} form no group on this product",
            ranks=ranks,
            where=view.place("ranks_per_node"),
            observed=view.listed("ranks_per_node"),
            expected=filled("{0}, {1}, {2} or {3}", 1, 2, 4, 8),
        )


def _ring(view: View) -> Iterator[Finding]:
    setting = view.need("visible")
    numbers = str(setting.value).split(",")
    if not setting.option.startswith("ASCEND") or not all(n.strip().isdecimal() and len(n) < 4 for n in numbers):
        raise NotGiven("visible")
    ids = sorted({int(number) for number in numbers})
    if len(ids) in (2, 4) and ids[0] < 4 <= ids[-1]:
        yield Finding(
            "the {ranks} NPUs at {where} lie in both rings",
            ranks=len(ids),
            where=setting.where,
            observed=str(setting),
            expected="all of them in 0 to 3, or all in 4 to 7",
        )
