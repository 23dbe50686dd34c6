from collections.abc import Iterable, Iterator

from doctor import ERROR, Finding, check, filled, joined
from doctor.engine.fact import Unreadable
from doctor.facts.container import HostContainer
from doctor.facts.npu import NpuChips
from doctor.facts.npu_health import REMEDIES, ChipHealth, NpuHealth, code_levels, judge_health
from doctor.facts.npu_table import NO_VALUES, NpuState, NpuTable

APART = ("table", "health", "chips")


@check(severity=ERROR, area="devices", apart=APART)
def npu_unhealthy(
    table: NpuTable | None, health: NpuHealth | None, chips: NpuChips | None, place: HostContainer | None
) -> Iterator[Finding]:
    """Every NPU answers, and reports that its health is OK.

    ## Why it matters
    Alarm and Critical stand for faults that the NPU itself has found: memory errors, heat, lost links. A job on it ends
    with a device error or computes wrong numbers. An NPU that does not answer npu-smi does not answer the job either;
    the table shows such a card as OK with zeros, or leaves it out.

    ## What to do
    {repair}
    Until the fault is gone, keep jobs off {host} (in Slurm: `scontrol update NodeName={host} State=DRAIN
    Reason=npu`). Report a fault that returns to the vendor, with `npu-smi info -t board -i {card}` and `cat
    /sys/class/dmi/id/product_serial`.

    ## Source
    The Health column of `npu-smi info`, whose words are OK, Warning, Alarm, Critical and UNKNOWN, and `npu-smi info -t
    health` (npu_info.c and npu_info_print.c of github.com/hicann/driver: health 0 is the word OK, also where the query
    failed). What a code means decides, also beside the word OK: with the levels FreeRestartNPU, RestartNPU,
    PreSeparateNPU and SeparateNPU of faultCode.json of github.com/Ascend/mind-cluster the vendor's scheduler starts no
    job. A code beside OK or Warning that the list does not have makes the check unknown.
    """
    silent: list[str] = []
    states, unread = (table.npus, table.unread) if table else ((), {})
    yield from _reported(states, health, chips, silent)
    shown = {(state.npu, state.chip) for state in states}
    shown |= {(report.npu, report.chip) for report in health.chips if report.verdict != "healthy"} if health else set()
    for card, message in (health.refused if health else {}).items():
        devices = [chip.device for chip in chips.chips if chip.npu == card] if chips else [card]
        dead = [device for device in devices if unread.get(f"NPU {device}") == NO_VALUES]
        if not dead and (not table or card in {state.npu for state in states}):
            silent.append(filled("NPU card {0}: {1}", card, message))
            continue
        yield Finding(
            "NPU card {card} does not answer npu-smi: {observed}; expected {expected}",
            npu=(dead or devices or [card])[0],
            card=card,
            chip=0,
            observed=message,
            expected="health OK",
            repair=_of_silent(card, 0),
        )
        shown |= {(chip.npu, chip.chip) for chip in chips.chips if chip.npu == card} if chips else set()
    absent = [chip for chip in chips.chips if (chip.npu, chip.chip) not in shown] if chips and table else []
    for chip in absent:
        if f"NPU {chip.device}" in unread or f"NPU {chip.npu}" in unread:
            continue  # the check is unknown for it
        if place and place.engine:
            silent.append(filled("NPU {0} is not in the table of npu-smi info", chip.device))
            continue
        yield Finding(
            "npu-smi info leaves out NPU {npu}, which npu-smi info -m lists: the card does not answer",
            npu=chip.device,
            card=chip.npu,
            chip=chip.chip,
            observed="not in the table",
            expected="health OK",
            repair=_of_silent(chip.npu, chip.chip),
        )
    if silent:
        raise Unreadable(joined("; ", silent[:3]))


def _reported(
    states: Iterable[NpuState], health: NpuHealth | None, chips: NpuChips | None, unlisted: list[str]
) -> Iterator[Finding]:
    """Findings of the chips that report of themselves; fills in why those with codes of no list are unknown."""
    reports = {(report.npu, report.chip): report for report in health.chips} if health else {}
    words = {place: (_device(chips, *place), report.health) for place, report in reports.items()}
    for state in states:
        place = state.npu, state.chip
        word = reports[place].health if state.health == "OK" and place in reports else state.health
        words[place] = state.device, word
    for place, (device, word) in words.items():
        report = reports.get(place)
        verdict = judge_health(word, report.codes if report else ())
        if verdict == "error":
            yield _finding(device, *place, word, report)
        elif verdict == "unknown" and report:
            unlisted.append(_unlisted(device, report))


def _unlisted(device: int, report: ChipHealth) -> str:
    codes = ", ".join(code for code in report.codes if code_levels((code,)) == {"unlisted"})
    return filled(
        "NPU {0} reports health {1}, with codes that the vendor's list does not have: {2}", device, report.health, codes
    )


def _device(chips: NpuChips | None, card: int, chip: int) -> int:
    found = [entry.device for entry in chips.chips if (entry.npu, entry.chip) == (card, chip)] if chips else []
    return found[0] if found else card


def _of_faulty(card: int, chip: int) -> str:
    return filled(
        "Read the codes: `npu-smi info -t health -i {0} -c {1}`, `npu-smi info -t ecc -i {2}`. A "
        "fault that asks for a reset: `npu-smi set -t reset -i {3} -c {4} -m 1` while no job runs, "
        "or restart the host.",
        card,
        chip,
        card,
        card,
        chip,
    )


def _of_silent(card: int, chip: int) -> str:
    return filled(
        "Reset it while no job runs: `npu-smi set -t reset -i {0} -c {1} -m 1`, or restart the host: "
        "`reboot`. `dmesg | grep -iE 'davinci|ascend|pcie'` has the reason. If it stays silent: "
        "reseat or replace the card.",
        card,
        chip,
    )


def _finding(device: int, card: int, chip: int, observed: str, report: ChipHealth | None) -> Finding:
    if report is None or not report.codes:
        return Finding(
            "NPU {npu} reports health {observed}; expected {expected}",
            npu=device,
            card=card,
            chip=chip,
            observed=observed,
            expected="OK",
            repair=_of_faulty(card, chip),
        )
    order = list(REMEDIES)
    return Finding(
        "NPU {npu} reports health {observed}, fault {codes} ({text}): {remedy}; expected {expected}",
        npu=device,
        card=card,
        chip=chip,
        observed=observed,
        expected="no fault",
        codes=list(report.codes[:8]),
        text=report.text or "no text",
        remedy=REMEDIES[max(report.levels, key=order.index)],
        repair=_of_faulty(card, chip),
    )
