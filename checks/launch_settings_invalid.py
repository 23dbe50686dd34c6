from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.engine.fact import Unreadable
from doctor.facts.npu import NpuProduct
from doctor.job import EnvSetting, LaunchConfig, invalid_settings, product_family


@check(severity=ERROR, area="ranks")
def launch_settings_invalid(launch: LaunchConfig, products: PerHost[NpuProduct] | None) -> Iterator[Finding]:
    """Every variable of HCCL, torch and MindSpore that is set has a valid value.

    ## Why it matters
    HCCL stops at a value that is out of range (EI0001), on every rank that has it. Others are read only in part: of
    ASCEND_RT_VISIBLE_DEVICES, what follows the first space is ignored.

    ## What to do
    Correct the variable where the job is launched, or unset it. This check sees the variables of the shell that runs
    doctor, not those that a launch script sets later.

    ## Source
    HCCL documentation, environment variables (one page each); MindSpore documentation, dynamic cluster; CANN
    documentation, ASCEND_RT_VISIBLE_DEVICES.
    """
    always = set(launch.problems)
    each = {name: set(invalid_settings(launch.env, name)) - always for name in ("A1", "A2", "A3")}
    depends = each["A1"] ^ each["A2"] | each["A1"] ^ each["A3"]
    if depends:
        try:
            always |= each.get(product_family(launch, products), set())
        except Unreadable:
            yield from map(_finding, sorted(always))
            names = ", ".join(sorted({setting.variable for setting in depends}))
            raise Unreadable(
                f"{names}: whether the value is valid depends on the product; name it with --product"
            ) from None
    yield from map(_finding, sorted(always))


def _finding(setting: EnvSetting) -> Finding:
    observed = setting.value or '""'
    return Finding(
        "{variable} has an invalid value",
        variable=setting.variable,
        observed=observed,
        expected=setting.expected,
    )
