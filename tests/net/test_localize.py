"""Every fault is named by its place, with the fewest causes, and nobody else is accused."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from doctor.engine.sanitize import count_noun
from doctor.net.assemble import merge_answers, read_answer
from doctor.net.cause import NetworkCause, place, port_text
from doctor.net.findings import failure_class
from doctor.net.localize import Localization, localize
from doctor.net.matrix import Attempt, AttemptOutcome, Matrix, TestedPort
from doctor.net.schedule import Schedule, quick
from tests.net.simulated import PlacedFault, attempts, fleet, key_of, racks, single_faults


def describe(cause: NetworkCause, matrix: Matrix) -> str:
    """The cause as a line of text: place, ports, how much failed, and how."""
    outcomes = cause.outcomes.items()
    results = ", ".join(f"{name} {number}" if len(outcomes) > 1 else name for name, number in outcomes)
    ports = "" if cause.all_ports else f", {port_text([matrix.ports[port] for port in cause.ports])}"
    total = count_noun(cause.failed + cause.opened, "attempt")
    text = f"{place(cause, matrix.hosts)}{ports}: {cause.failed} of {total} failed ({results})"
    others = ", or ".join(place(candidate, matrix.hosts) for candidate in cause.candidates)
    return f"{text}; equally possible: {others}" if others else text


def keys(localization: Localization) -> set[tuple[object, ...]]:
    return {key_of(cause) for cause in localization.causes}


def is_seen(fault: PlacedFault, matrix: Matrix) -> int:
    """How many pairs show the fault."""
    return len({(s, t) for s, t, p, _ in matrix.failures() if fault.breaks(s, t, p)})


def check_singles(hosts: int, placements: range, ports: int, schedule: bool) -> None:
    groups = racks(hosts, 4 if hosts < 64 else 16)
    for seed in placements:
        plan: Schedule | None = quick(hosts, ports, seed) if schedule else None
        for fault in single_faults(hosts, ports, groups, Random(f"{hosts} {seed}")):
            matrix = attempts(hosts, ports, [fault], plan)
            observed = is_seen(fault, matrix)
            localization = localize(matrix, groups)
            if observed == 0:
                assert localization == Localization()
            elif fault.kind == "groups" and observed < 3:
                assert {host for cause in localization.causes for host in cause.accused} <= set(range(hosts))
            else:
                assert keys(localization) == {fault.key}, [describe(cause, matrix) for cause in localization.causes]
                assert all(cause.certain and not cause.opened for cause in localization.causes)


@pytest.mark.parametrize("hosts", [4, 5, 8, 13])
@pytest.mark.parametrize("schedule", [False, True], ids=["full", "quick"])
def test_each_single_fault_is_named(hosts: int, schedule: bool) -> None:
    check_singles(hosts, range(20), 3, schedule)


def test_each_single_fault_is_named_in_a_large_fleet() -> None:
    check_singles(48, range(1), 3, schedule=False)
    check_singles(256, range(1), 3, schedule=True)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("hosts", [6, 17, 24, 33, 64, 128])
@pytest.mark.parametrize("schedule", [False, True], ids=["full", "quick"])
def test_each_single_fault_is_named_at_every_size(hosts: int, schedule: bool) -> None:
    check_singles(hosts, range(20 if hosts < 64 else 5), 3, schedule)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_each_single_fault_is_named_among_256_hosts() -> None:
    check_singles(256, range(2), 3, schedule=False)
    check_singles(256, range(20), 3, schedule=True)


def several(hosts: int, number: int, random: Random) -> list[PlacedFault]:
    """Faults at distinct places: no host, and no group, is of two of them, and none is everywhere."""
    groups = racks(hosts, 4)
    by_name = {group.name: set(group.hosts) for group in groups}
    chosen: list[PlacedFault] = []
    taken: set[int] = set()
    while len(chosen) < number:
        fault = random.choice(single_faults(hosts, 4, groups, random))
        place = set(fault.hosts).union(*(by_name[name] for name in fault.groups))
        grouped = any(other.groups for other in chosen)
        if fault.kind == "fleet" or place & taken or (grouped and fault.groups):
            continue
        taken |= place
        chosen.append(fault)
    return chosen


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("hosts", [16, 24])
def test_faults_at_once_are_all_named(hosts: int, number: int) -> None:
    for seed in range(12):
        faults = several(hosts, number, Random(f"{hosts} {number} {seed}"))
        matrix = attempts(hosts, 4, faults)
        localization = localize(matrix, racks(hosts, 4))
        assert keys(localization) == {fault.key for fault in faults}, (
            seed,
            [describe(c, matrix) for c in localization.causes],
        )


def test_partial_coverage_accuses_nobody_else() -> None:
    """Half of the cells, at random, are unknown or were not tried."""
    for seed in range(30):
        random = Random(seed)
        for fault in single_faults(12, 3, (), random):
            full = attempts(12, 3, [fault])
            rows = [
                ["".join(c if c == "-" or random.random() < 0.5 else random.choice("?.!") for c in row) for row in some]
                for some in full.rows
            ]
            matrix = fleet(12, 3, rows)
            for cause in localize(matrix).causes:
                named = [cause, *cause.candidates]
                assert any(set(fault.hosts) & set(c.hosts) for c in named) or fault.kind == "fleet" == cause.kind, (
                    seed,
                    fault.key,
                    describe(cause, matrix),
                )


def test_what_was_not_tried_is_no_fault_and_no_proof_of_health() -> None:
    assert localize(fleet(4, 1, [["-...", ".-..", "..-.", "...-"]])) == Localization()
    assert localize(fleet(4, 1, [["-???", "?-!?", "?!-?", "???-"]])) == Localization()


def test_of_two_hosts_it_cannot_be_told_which() -> None:
    (cause,) = localize(fleet(2, 1, [["-d", "o-"]])).causes
    assert (cause.kind, cause.hosts, cause.certain) == ("direction", (0, 1), False)
    assert [(c.kind, c.hosts, c.way) for c in cause.candidates] == [
        ("host", (0,), "outbound"),
        ("host", (1,), "inbound"),
    ]
    (cause,) = localize(fleet(2, 1, [["-d", "d-"]])).causes
    assert (cause.kind, [c.hosts for c in cause.candidates]) == ("link", [(0,), (1,)])


def test_of_three_hosts_the_two_that_work_together_are_innocent() -> None:
    (cause,) = localize(fleet(3, 1, [["-dd", "d-o", "do-"]])).causes
    assert (cause.kind, cause.hosts, cause.certain) == ("host", (0,), True)
    (cause,) = localize(fleet(3, 1, [["-do", "o-o", "oo-"]])).causes
    assert (cause.kind, cause.hosts, cause.certain) == ("direction", (0, 1), True)
    (cause,) = localize(fleet(3, 1, [["-d?", "o-o", "o?-"]])).causes
    assert not cause.certain, "the third did not decide it"
    (cause,) = localize(fleet(3, 1, [["-dd", "d-d", "dd-"]])).causes
    assert (cause.kind, len(cause.candidates)) == ("fleet", 3)


def test_a_port_that_its_own_host_cannot_listen_on_is_that_hosts() -> None:
    (cause,) = localize(fleet(2, 2, [["-o", "o-"], ["-b", "o-"]])).causes
    assert (cause.kind, cause.hosts, cause.ports, cause.certain) == ("host", (1,), (1,), True)


def test_every_port_but_ssh_is_one_cause() -> None:
    """A rule that drops all TCP packets of one host except ssh."""
    hosts, ports = 4, 34
    fault = PlacedFault("host", lambda s, t, p: 2 in (s, t) and p, (2,), "both", (), tuple(range(1, ports)))
    matrix = attempts(hosts, ports, [fault])
    (cause,) = localize(matrix).causes
    assert key_of(cause) == fault.key
    assert describe(cause, matrix) == (
        "to and from n2, 33 TCP ports: hccl 60001-60033: 198 of 198 attempts failed (dropped)"
    )


def test_a_path_that_loses_packets_now_and_then_is_one_cause() -> None:
    random = Random(4)
    lossy = {(s, t, p) for s in range(8) for t in range(8) for p in range(34) if 3 in (s, t) and random.random() < 0.2}
    matrix = attempts(8, 34, [PlacedFault("host", lambda s, t, p: (s, t, p) in lossy)])
    (cause,) = localize(matrix).causes
    assert (cause.kind, cause.hosts, cause.way, not cause.opened) == ("host", (3,), "both", False)


@pytest.mark.parametrize("hosts", [5, 8, 16])
def test_a_host_that_lies_accuses_itself_or_one_direction_from_it(hosts: int) -> None:
    for seed in range(20):
        random = Random(f"{hosts} {seed}")
        liar, victim = random.sample(range(hosts), 2)
        half = set(random.sample([h for h in range(hosts) if h != liar], hosts // 2))
        for lie in ({victim}, half, set(range(hosts)) - {liar}):
            matrix = attempts(hosts, 3, [PlacedFault("x", lambda s, t, _, who=liar, lie=lie: s == who and t in lie)])
            for cause in localize(matrix).causes:
                assert cause.hosts[0] == liar
                assert (cause.kind, cause.way) in {("host", "outbound"), ("direction", "both")}


@pytest.mark.parametrize("hosts", [6, 8, 16])
def test_a_host_that_calls_everything_open_hides_no_fault_of_another(hosts: int) -> None:
    for seed in range(20):
        liar, bad = Random(f"{hosts} {seed}").sample(range(hosts), 2)
        for fault in (
            PlacedFault("host", lambda s, t, _, liar=liar, bad=bad: s != liar and t == bad),
            PlacedFault("host", lambda s, t, _, liar=liar, bad=bad: s != liar and bad in (s, t)),
        ):
            (cause,) = localize(attempts(hosts, 3, [fault])).causes
            assert (cause.kind, cause.hosts) == ("host", (bad,))


def test_two_hosts_with_one_address_are_both_named() -> None:
    """What each source reaches is a matter of its ARP table."""
    hosts = 6
    answers = {}
    for source in range(hosts):
        row = ["o"] * hosts
        wrong = [] if source in (1, 4) else [(1, 4) if source % 2 else (4, 1)]
        items = []
        for target, other in wrong:
            row[target] = "w"
            items.append({"target": target, "port": 0, "answered_by": other})
        raw = {"rows": ["".join(row)], "attempts": items, "listeners": [{"port": 0, "state": "listening"}]}
        answers[source] = read_answer(source, raw, hosts, 1)
    empty = fleet(hosts, 1, [])
    (cause,) = localize(merge_answers(empty.hosts, empty.ports, answers)).causes
    assert (cause.kind, cause.hosts, cause.outcomes) == ("address", (1, 4), {"wrong host": 4})


def test_a_route_of_one_host_to_one_group_is_one_cause() -> None:
    groups = racks(12, 4, "subnet")
    matrix = attempts(12, 2, [PlacedFault("x", lambda s, t, _: s == 1 and t in groups[2].hosts, letter="u")])
    (cause,) = localize(matrix, groups).causes
    assert describe(cause, matrix) == "from n1 to subnet s2: 8 of 8 attempts failed (unreachable)"


def test_a_sample_of_ports_names_the_port() -> None:
    from doctor.net.schedule import full

    hosts = 40
    plan = full(hosts, 8, ports_each=3)
    matrix = attempts(hosts, 8, [PlacedFault("x", lambda s, t, p: t == 7 and p == 5)], plan)
    (cause,) = localize(matrix).causes
    assert (cause.kind, cause.hosts, cause.way, cause.ports) == ("host", (7,), "inbound", (5,))
    matrix = attempts(hosts, 8, [PlacedFault("x", lambda s, t, p: {s, t} == {7, 20})], plan)
    (cause,) = localize(matrix).causes
    assert (cause.kind, cause.hosts, cause.all_ports) == ("link", (7, 20), True)


HALVES = {
    "two halves": lambda source, target: (source < 500) == (target < 500),
    "two planes": lambda source, target: source % 2 == target % 2,
}


@pytest.mark.parametrize("halves", HALVES)
def test_a_thousand_hosts_that_are_cut_in_two_across_racks_have_one_cause(halves: str) -> None:
    """And not one for each pair of racks."""
    works, hosts = HALVES[halves], 1000
    rows = ["".join("-" if s == t else "o" if works(s, t) else "d" for t in range(hosts)) for s in range(hosts)]
    began = time.process_time()
    (cause,) = localize(fleet(hosts, 2, [rows] * 2), racks(hosts, 8)).causes
    assert (cause.kind, [len(group.hosts) for group in cause.groups], cause.all_ports) == ("groups", [500, 500], True)
    assert time.process_time() - began < 5


def test_a_thousand_hosts_of_which_many_pairs_of_racks_fail_cost_no_more() -> None:
    """As where a spine drops some flows. What is too much for causes of groups is counted as pairs of hosts."""
    hosts = 1000
    bad = {(a, b) for a in range(125) for b in range(a) if (a * 31 + b * 17) % 10 == 0}
    bad |= {(b, a) for a, b in bad}
    rows = [
        "".join("-" if s == t else "d" if (s // 8, t // 8) in bad else "o" for t in range(hosts)) for s in range(hosts)
    ]
    began = time.process_time()
    localization = localize(fleet(hosts, 1, [rows]), racks(hosts, 8))
    assert time.process_time() - began < 5
    assert all(cause.kind == "link" for cause in localization.causes)
    assert len(localization.causes) + localization.more == 64 * len(bad) // 2


@pytest.mark.bench
def test_cost_of_256_hosts_and_34_ports() -> None:
    hosts, ports = 256, 34
    for name, broken in (("one host", {7}), ("20 hosts", set(range(0, hosts, 13)))):
        row = {bad: "".join("d" if bad or t in broken else "o" for t in range(hosts)) for bad in (False, True)}
        rows = [row[s in broken][:s] + "-" + row[s in broken][s + 1 :] for s in range(hosts)]
        matrix = fleet(hosts, ports, [rows] * ports)
        begin = time.process_time()
        localization = localize(matrix, racks(hosts, 8))
        print(f"{name}: {time.process_time() - begin:.2f} s of CPU")
        assert {cause.hosts[0] for cause in localization.causes} == broken


def test_two_hosts_with_one_address_explain_all_that_fails_to_and_from_them() -> None:
    """One source only was answered by the other; the rest got no answer at all."""
    hosts = 5
    row_of = {0: "-owoo", 2: "od-oo"}
    answers = {}
    for source in range(hosts):
        row = row_of.get(source, "o" * hosts)
        items = [{"target": 2, "port": 0, "answered_by": 4}] if source == 0 else []
        raw = {"rows": [row], "attempts": items, "listeners": [{"port": 0, "state": "listening"}]}
        answers[source] = read_answer(source, raw, hosts, 1)
    empty = fleet(hosts, 1, [])
    matrix = merge_answers(empty.hosts, empty.ports, answers)
    (cause,) = localize(msgspec.structs.replace(matrix, shared=((2, 4),))).causes
    assert (cause.kind, cause.hosts, cause.failed) == ("address", (2, 4), 2)
    working = fleet(hosts, 1, [["o" * hosts] * hosts])
    assert localize(msgspec.structs.replace(working, shared=((2, 4),))).causes == ()


def test_a_way_of_a_host_whose_failures_another_host_explains_is_not_named() -> None:
    """Host 3 cannot be reached, so that what it tries is not known; only host 1, which rejects all, answers it."""
    causes = localize(fleet(5, 1, [["-uodo", "o-odo", "ou-do", "?u?-?", "ouod-"]])).causes
    named = [(cause.kind, cause.hosts, cause.way, cause.outcomes) for cause in causes]
    assert named == [
        ("host", (1,), "inbound", {"unreachable": 4}),
        ("host", (3,), "inbound", {"dropped": 4}),
    ]


def test_it_is_not_named_either_where_that_port_was_tried_once() -> None:
    """In a sample of ports the one that host 3 tried of host 1 is no other's."""
    tried, once = ["-uodo", "o-odo", "ou-do", "?.?-?", "ouod-"], [".....", ".....", ".....", ".u...", "....."]
    causes = localize(fleet(5, 2, [tried, once])).causes
    named = [(cause.kind, cause.hosts, cause.way, cause.ports) for cause in causes]
    assert named == [("host", (1,), "inbound", (0, 1)), ("host", (3,), "inbound", (0,))]


def test_failures_that_come_and_go_beside_those_of_a_whole_host_are_that_hosts() -> None:
    """All new connections to n0 are dropped, but a few: on one port every one, on the other two of four."""
    rows = [["-oooo", "d-ooo", "do-oo", "doo-o", "dooo-"], ["-oooo", "o-ooo", "oo-oo", "doo-o", "dooo-"]]
    (cause,) = localize(fleet(5, 2, rows)).causes
    assert (cause.kind, cause.hosts, cause.way, cause.failed, cause.opened) == ("host", (0,), "inbound", 6, 2)


def test_flows_that_another_host_loses_do_not_decide_what_a_blocked_port_is() -> None:
    """Host 0 loses some flows to and from all; host 3 drops what comes in on its second port."""
    first, second = ["-fff", "f-oo", "fo-o", "foo-"], ["-fff", "f-od", "fo-d", "foo-"]
    causes = localize(fleet(4, 2, [first, second])).causes
    named = {cause.hosts: (cause.way, cause.ports, cause.outcomes) for cause in causes}
    assert named == {(0,): ("both", (0, 1), {"some flows": 12}), (3,): ("inbound", (1,), {"dropped": 2})}
    assert {cause.hosts: failure_class(cause) for cause in causes} == {(0,): "flows", (3,): "port"}


def test_one_more_direction_beside_the_failures_of_a_host_is_its_own_cause() -> None:
    rows = [["-oooo", "d-ooo", "do-oo", "doo-o", "dooo-"], ["-oooo", "o-ooo", "oo-oo", "doo-o", "oooo-"]]
    assert {(cause.kind, cause.hosts) for cause in localize(fleet(5, 2, rows)).causes} == {
        ("host", (0,)),
        ("direction", (3, 0)),
    }


def cut(parts: Sequence[range], way: str = "both", ports: tuple[int, ...] | None = None) -> PlacedFault:
    """Nothing passes between the parts of a fleet; of two parts, perhaps, in one direction alone."""
    part_of = {host: number for number, part in enumerate(parts) for host in part}
    return PlacedFault(
        "border",
        lambda s, t, p: part_of[s] != part_of[t] and (way == "both" or part_of[s] == 0) and (p in (ports or (p,))),
    )


@pytest.mark.parametrize("schedule", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("hosts", [8, 16, 64])
def test_a_fleet_that_is_cut_in_two_halves_is_one_cause_and_no_host_of_it(hosts: int, schedule: bool) -> None:
    """A spine that is dead: no half is worse than the other."""
    half = hosts // 2
    for seed in range(5):
        plan = quick(hosts, 3, seed) if schedule else None
        matrix = attempts(hosts, 3, [cut((range(half), range(half, hosts)))], plan)
        (cause,) = localize(matrix).causes
        assert (cause.kind, cause.way, cause.certain, not cause.opened) == ("groups", "both", True, True)
        assert cause.accused == frozenset(range(hosts))
        assert describe(cause, matrix).startswith(f"between hosts n[0-{half - 1}] and hosts n[{half}-{hosts - 1}]: ")


def test_of_a_cut_fleet_the_part_that_is_clearly_smaller_is_named() -> None:
    for small in (2, 3, 5):
        (cause,) = localize(attempts(16, 2, [cut((range(16 - small), range(16 - small, 16)))])).causes
        assert (cause.kind, cause.accused) == ("groups", frozenset(range(16 - small, 16)))
    (cause,) = localize(attempts(16, 2, [cut((range(6), range(6, 16)))])).causes
    assert len(cause.accused) == 16


def test_a_switch_with_half_of_the_hosts_is_not_to_blame_alone() -> None:
    (cause,) = localize(attempts(8, 2, [cut((range(4), range(4, 8)))]), racks(8, 4)).causes
    assert (cause.kind, cause.groups[0].label, len(cause.accused)) == ("groups", "switch s0", 8)
    (cause,) = localize(attempts(16, 2, [cut((range(4), range(4, 16)))]), racks(16, 4)).causes
    assert cause.accused == frozenset(range(4))


def parts_of(*sizes: int) -> list[range]:
    """Ranges of hosts of these sizes."""
    ends = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    return [range(*pair) for pair in itertools.pairwise(ends)]


@pytest.mark.parametrize("schedule", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("sizes", [(5, 5, 5), (2, 2, 1), (2, 1, 1), (7, 8, 1), (5, 2, 2, 2), (6, 3, 3)])
def test_a_cut_into_parts_of_which_none_has_a_majority_is_one_cause_and_no_host_of_it(
    sizes: tuple[int, ...], schedule: bool
) -> None:
    """Nor a host that is a part for itself: another spine may be dead as well as that host."""
    hosts = sum(sizes)
    for seed in range(5):
        matrix = attempts(hosts, 2, [cut(parts_of(*sizes))], quick(hosts, 2, seed) if schedule else None)
        (cause,) = localize(matrix).causes
        assert (cause.kind, cause.certain, not cause.opened) == ("groups", True, True)
        assert sorted(len(group.hosts) for group in cause.groups) == sorted(sizes)
        assert cause.accused == frozenset(range(hosts)) and cause.failed == len(list(matrix.failures()))


def test_of_a_cut_fleet_with_a_majority_the_others_are_apart() -> None:
    for sizes, lone in (((3, 1, 1), {3, 4}), ((4, 2, 1), {6}), ((9, 6, 1), {15})):
        causes = localize(attempts(sum(sizes), 2, [cut(parts_of(*sizes))])).causes
        assert {cause.hosts[0] for cause in causes if cause.kind == "host"} == lone
        assert [cause.kind for cause in causes if cause.kind != "host"] == ["groups"] * (len(sizes) - 1 - len(lone))


def test_parts_that_no_attempt_connects_are_no_cut() -> None:
    """A dead host, and two pairs of others that did not try each other, or of which one answers one way."""
    (cause,) = localize(fleet(5, 1, [["-o..d", "o-..d", "..-od", "..o-d", "dddd-"]])).causes
    assert (cause.kind, cause.hosts) == ("host", (4,))
    causes = localize(fleet(5, 1, [["-oodd", "o-ddd", "dd-od", "ddo-d", "dddd-"]])).causes
    assert ("host", (4,)) in {(cause.kind, cause.hosts) for cause in causes}


def test_a_silent_host_is_no_part_of_a_cut() -> None:
    """It died, so that nothing is known of it; the others are two halves."""
    (cause,) = localize(fleet(5, 1, [["-odd?", "o-dd?", "dd-o?", "ddo-?", "????-"]])).causes
    assert (cause.kind, cause.accused) == ("groups", frozenset(range(4)))


def test_parts_of_a_cut_that_are_known_groups_have_their_names() -> None:
    (cause,) = localize(attempts(12, 2, [cut(parts_of(4, 4, 4))]), racks(12, 4)).causes
    assert place(cause, [f"n{number}" for number in range(12)]) == "between switch s0, switch s1 and switch s2"


def test_a_cut_of_one_direction_or_of_one_port_names_its_two_parts() -> None:
    (cause,) = localize(attempts(12, 3, [cut((range(6), range(6, 12)), "outbound")])).causes
    assert (cause.kind, cause.way, [group.label for group in cause.groups]) == (
        "groups",
        "outbound",
        ["hosts n[0-5]", "hosts n[6-11]"],
    )
    (cause,) = localize(attempts(12, 3, [cut((range(6), range(6, 12)), ports=(1,))])).causes
    assert (cause.kind, cause.ports, cause.all_ports) == ("groups", (1,), False)


def test_a_host_a_link_and_a_liar_beside_a_cut_are_told_apart_from_it() -> None:
    halves = cut((range(10), range(10, 16)))
    dead = PlacedFault("host", lambda s, t, _: 3 in (s, t), (3,))
    link = PlacedFault("link", lambda s, t, _: {s, t} == {11, 12}, (11, 12))
    for fault in (dead, link):
        causes = localize(attempts(16, 2, [halves, fault])).causes
        assert {(cause.kind, cause.hosts) for cause in causes} == {("groups", ()), (fault.kind, fault.hosts)}
    hidden = PlacedFault("border", lambda s, t, p: halves.breaks(s, t, p) and s != 2)
    causes = localize(attempts(16, 2, [hidden])).causes
    assert [(cause.kind, cause.way, len(cause.accused)) for cause in causes] == [("groups", "outbound", 16)] * 2


def test_a_refusal_of_a_sources_own_kernel_stands_beside_a_fault_of_its_target() -> None:
    """Some flows to one host are lost, and another host's route to it prohibits all: two faults with one target."""
    rows = ("-oofo", "o-ofo", "oo-uo", "ooo-o", "ooof-")
    refused = Attempt(2, 3, 0, AttemptOutcome.UNREACHABLE, "no way to it (EACCES)")
    matrix = Matrix(tuple("abcde"), (TestedPort("master", 29500),), (rows,), (refused,))
    assert sorted(describe(cause, matrix) for cause in localize(matrix).causes) == [
        "from c to d: 1 of 1 attempt failed (unreachable); equally possible: to d",
        "to d: 3 of 3 attempts failed (some flows)",
    ]


def test_refusals_of_several_kernels_are_those_of_their_common_target() -> None:
    """As of a host that is switched off, whose address nobody finds."""
    rows = ("-ooou", "o-oou", "oo-ou", "ooo-u", "????-")
    told = tuple(
        Attempt(source, 4, 0, AttemptOutcome.UNREACHABLE, "no way to it (EHOSTUNREACH)") for source in range(4)
    )
    matrix = Matrix(tuple("abcde"), (TestedPort("master", 29500),), (rows,), told)
    assert [describe(cause, matrix) for cause in localize(matrix).causes] == [
        "to e: 4 of 4 attempts failed (unreachable)"
    ]
