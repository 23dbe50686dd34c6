"""Hosts become ranks, the world's size becomes layouts; what cannot be is said in one sentence."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.record import LaunchOptions
from doctor.environment.job_context import detect
from doctor.smoke.model import STAGES, Layout, SmokePlan
from doctor.smoke.plan import (
    HEADS,
    LAYERS,
    PlanHost,
    SmokeOptions,
    allocation_notes,
    buffer_notes,
    build_plan,
    default_layouts,
    left_unused,
    options_of_launch,
    parse_layout,
    plan_as_dict,
)
from doctor.smoke.rendezvous.link import Hello
from doctor.smoke.rendezvous.parts import build_launched_plan

NPUS = PlanHost(devices={"npu": (0, 1, 2, 3), "gpu": ()})
GPUS = PlanHost(devices={"npu": (), "gpu": (0, 1)})
ONE_HOST = {"localhost": PlanHost()}


def ranks(plan: SmokePlan) -> list[tuple[int, str, int, int]]:
    return [(place.rank, place.host, place.local, place.device) for place in plan.places]


def test_this_machine_alone_has_four_ranks_on_its_cpus() -> None:
    plan = build_plan(ONE_HOST, SmokeOptions())
    assert plan.backend == "gloo"
    assert ranks(plan) == [
        (0, "localhost", 0, -1),
        (1, "localhost", 1, -1),
        (2, "localhost", 2, -1),
        (3, "localhost", 3, -1),
    ]
    assert plan.master_addr == "127.0.0.1"
    assert plan.layouts == default_layouts(4)
    assert plan.stages == tuple(stage for stage in STAGES if stage not in ("native", "soak", "devices"))


def test_several_hosts_do_not_meet_at_an_address_that_each_of_them_has() -> None:
    hosts = {"b": PlanHost(slots=1), "a": PlanHost(slots=1)}
    for address in ("127.0.0.1", "localhost", "::1"):
        with pytest.raises(ValueError, match="ranks of 2 hosts cannot meet"):
            build_plan(hosts, SmokeOptions(master_addr=address))
        assert build_plan(ONE_HOST, SmokeOptions(master_addr=address)).master_addr == address
    assert build_plan(hosts, SmokeOptions(master_addr="10.0.0.1")).master_addr == "10.0.0.1"
    for nodes, address in ((1, "10.0.0.1"), (2, "127.0.0.1"), (1, "")):
        assert options_of_launch(LaunchOptions(max_nodes=nodes, master_addr=address), {}).master_addr == address
    for address in ("127.0.0.1", "localhost", "ip6-localhost", "::1", "0.0.0.0"):
        assert options_of_launch(LaunchOptions(max_nodes=1, master_addr=address), {}).master_addr == ""


def test_native_is_asked_for() -> None:
    stages = build_plan(ONE_HOST, SmokeOptions(native=True)).stages
    assert stages == tuple(stage for stage in STAGES if stage not in ("soak", "devices"))


def test_the_device_test_is_asked_for_and_has_its_time_beyond_the_budget() -> None:
    plan = build_plan(ONE_HOST, SmokeOptions(device_seconds=20.0))
    assert plan.stages[:4] == ("start", "rendezvous", "devices", "collectives")
    assert (plan.device_seconds, plan.budget) == (20.0, 140.0)


def test_ranks_follow_the_inventory_host_by_host() -> None:
    plan = build_plan({"b": PlanHost(slots=1), "a": PlanHost(slots=2)}, SmokeOptions())
    assert ranks(plan) == [(0, "b", 0, -1), (1, "a", 0, -1), (2, "a", 1, -1)]


def test_ranks_per_host_wins_over_slots() -> None:
    assert len(build_plan({"a": PlanHost(slots=8), "b": PlanHost()}, SmokeOptions(ranks_per_host=3)).places) == 6


def test_several_hosts_without_slots_have_two_ranks_each() -> None:
    assert len(build_plan({"a": PlanHost(), "b": PlanHost(), "c": PlanHost()}, SmokeOptions()).places) == 6


@pytest.mark.parametrize(("host", "backend"), [(NPUS, "hccl"), (GPUS, "nccl")])
def test_accelerators_that_every_host_has_are_used(host: PlanHost, backend: str) -> None:
    plan = build_plan({"a": host, "b": host}, SmokeOptions())
    kind = {"hccl": "npu", "nccl": "gpu"}[backend]
    assert plan.backend == backend
    assert [place.device for place in plan.places] == list(host.devices[kind]) * 2


def test_one_host_without_accelerators_leaves_the_cpus() -> None:
    assert build_plan({"a": NPUS, "b": PlanHost(slots=2)}, SmokeOptions()).backend == "gloo"


def test_chosen_devices() -> None:
    plan = build_plan({"a": NPUS, "b": NPUS}, SmokeOptions(devices=(1, 3)))
    assert [place.device for place in plan.places] == [1, 3, 1, 3]


def test_ordinals_count_the_devices_that_a_host_shows() -> None:
    container = PlanHost(devices={"npu": (5, 6, 7)})
    plan = build_plan({"a": container, "b": NPUS}, SmokeOptions(devices=()))
    assert [(place.device, place.ordinal) for place in plan.places][:4] == [(5, 0), (6, 1), (7, 2), (0, 0)]
    assert [place.ordinal for place in build_plan({"a": container}, SmokeOptions(devices=(7,))).places] == [2]
    assert [place.ordinal for place in build_plan(ONE_HOST, SmokeOptions()).places] == [-1] * 4


EIGHT = PlanHost(devices={"npu": tuple(range(8))}, npu_model="d801")


def test_layouts_of_the_atlas_training_series_have_groups_that_it_allows() -> None:
    one = build_plan({"a": EIGHT}, SmokeOptions())
    assert [layout.name for layout in one.layouts] == ["dp8", "dp8 zero1 acc2", "tp8 recompute"]
    two = build_plan({"a": EIGHT, "b": EIGHT}, SmokeOptions())
    assert [layout.name for layout in two.layouts] == ["dp16", "dp16 zero1 acc2", "dp2 tp8", "pp2 dp8 recompute"]
    half = build_plan({"a": EIGHT}, SmokeOptions(devices=(4, 5, 6, 7)))
    assert half.layouts == default_layouts(4)
    other = msgspec.structs.replace(EIGHT, npu_model="d802")
    assert build_plan({"a": other}, SmokeOptions()).layouts == default_layouts(8)
    assert build_plan({"a": EIGHT}, SmokeOptions(backend="gloo")).group_rule == ""


@pytest.mark.parametrize(
    ("devices", "layouts", "message"),
    [
        ((0, 1, 2), (), "it has 3 NPUs on a host"),
        ((3, 4), (), "NPUs 3, 4 of a are not in one half"),
        ((), ("dp=4,tp=2",), "--layout dp4 tp2: HCCL forms no such group: NPUs 0, 2, 4, 6 of a are not in one half"),
        ((), ("dp=4,pp=2",), "--layout pp2 dp4: HCCL forms no such group: NPUs 0, 4 of a are not in one half"),
    ],
)
def test_groups_that_the_atlas_training_series_forbids(
    devices: tuple[int, ...], layouts: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build_plan({"a": EIGHT}, SmokeOptions(devices=devices, layouts=layouts))


def test_what_hccls_buffers_take_is_said() -> None:
    plan = build_plan({"a": NPUS}, SmokeOptions())
    assert "is 200 MB, the default: the process groups of a rank (3) take 1.2 GB" in buffer_notes(plan, {})[0]
    assert "is 64 MB: the process groups of a rank (3) take 0.4 GB" in buffer_notes(plan, {"HCCL_BUFFSIZE": "64"})[0]
    assert buffer_notes(plan, {"HCCL_BUFFSIZE": "x" * 1000}) == buffer_notes(plan, {})
    assert not buffer_notes(build_plan({"a": NPUS}, SmokeOptions(environment="clean")), {})
    assert not buffer_notes(build_plan({"a": GPUS}, SmokeOptions()), {})


def test_the_master_is_the_first_host_as_it_was_reached() -> None:
    assert (
        build_plan({"a": PlanHost(server="10.0.0.7"), "b": PlanHost(server="10.0.0.8")}, SmokeOptions()).master_addr
        == "10.0.0.7"
    )
    assert build_plan({"a": PlanHost(), "b": PlanHost()}, SmokeOptions()).master_addr == "a"
    assert (
        build_plan({"a": PlanHost(server="10.0.0.7"), "b": PlanHost()}, SmokeOptions(master_addr="m")).master_addr
        == "m"
    )


@pytest.mark.parametrize(
    ("hosts", "wish", "message"),
    [
        ({"a": NPUS}, SmokeOptions(devices=(7,)), "a: no NPU 7; it has 0, 1, 2, 3"),
        ({"a": NPUS}, SmokeOptions(ranks_per_host=5), "a: 5 ranks for 4 NPUs; expected one NPU a rank"),
        (
            {"a": PlanHost({"gpu": (0,)})},
            SmokeOptions(ranks_per_host=2),
            "a: 2 ranks for 1 GPU; expected one GPU a rank",
        ),
        ({"a": PlanHost()}, SmokeOptions(backend="nccl"), "a: has no GPU; expected at least one for nccl"),
        ({"a": PlanHost(hidden=["gpu"])}, SmokeOptions(backend="nccl"), "a: its environment hides every GPU; expected"),
        (
            {"a": PlanHost(slots=4)},
            SmokeOptions(layouts=("dp=3",)),
            "dp 3 x tp 1 x pp 1 = 3; expected 4, the number of ranks",
        ),
    ],
)
def test_what_the_hosts_do_not_allow(hosts: dict[str, PlanHost], wish: SmokeOptions, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_plan(hosts, wish)


def test_layouts_of_four() -> None:
    assert [layout.name for layout in default_layouts(4)] == [
        "dp4",
        "dp4 zero1 acc2",
        "tp4",
        "dp2 tp2",
        "pp2 dp2",
        "pp2 tp2 recompute",
    ]
    assert [layout.name for layout in default_layouts(2)] == ["dp2", "dp2 zero1 acc2", "tp2", "pp2 recompute"]


def test_eight_ranks_have_three_dimensions_at_once() -> None:
    assert Layout(dp=2, tp=2, pp=2, recompute=True) in default_layouts(8)
    assert Layout(tp=8) in default_layouts(8)


@given(st.integers(1, 512))
def test_every_layout_fits_the_world_and_the_model(world: int) -> None:
    layouts = default_layouts(world)
    assert len(set(layouts)) == len(layouts)
    for layout in layouts:
        assert layout.world == world
        assert HEADS % layout.tp == 0
        assert layout.pp <= LAYERS
    assert any(layout.dp == world and not layout.zero for layout in layouts)
    assert any(layout.accumulate > 1 for layout in layouts)
    assert any(layout.recompute for layout in layouts)


def test_a_layout_in_words() -> None:
    assert parse_layout("dp=4,tp=2,pp=1", 8) == Layout(dp=4, tp=2)
    assert parse_layout("dp=2, zero=1, acc=2, recompute", 2) == Layout(dp=2, zero=True, accumulate=2, recompute=True)
    assert parse_layout("dp=2,zero=0", 2) == Layout(dp=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a part of a layout; expected dp=4,tp=2,pp=1"),
        ("ep=2", "'ep' is not a part of a layout"),
        ("zero", "names none of dp, tp, pp"),
        ("dp=4,dp=2", "dp appears twice; expected each part once"),
        ("dp=x", "dp=x; expected a whole number of at least 1"),
        ("dp=0", "dp=0; expected a whole number of at least 1"),
        ("dp", "dp=; expected a whole number of at least 1"),
        ("dp=٤", "expected a whole number of at least 1"),
        ("dp=4,zero=2", "zero=2; expected 0 or 1"),
        ("dp=4,tp=2", "dp 4 x tp 2 x pp 1 = 8; expected 4, the number of ranks"),
        ("pp=4", "pp=4; expected at most 2, the layers of the model"),
        ("dp=4,acc=3", "acc=3; expected 1, 2 or 4"),
    ],
)
def test_a_layout_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"--layout .*: .*{message}"):
        parse_layout(text, 4)


def test_tensor_parallelism_divides_the_heads() -> None:
    with pytest.raises(ValueError, match="tp=3; expected a divisor of 8, the attention heads of the model"):
        parse_layout("tp=3", 3)


@given(st.text(max_size=30))
def test_any_text_is_a_layout_or_a_value_error(text: str) -> None:
    try:
        assert parse_layout(text, 4).world == 4
    except ValueError as error:
        assert str(error).startswith("--layout ")


@given(st.integers(1, 16), st.booleans())
def test_what_hosts_are_told_has_every_field(count: int, native: bool) -> None:
    plan = build_plan({"a": PlanHost(slots=count)}, SmokeOptions(native=native))
    document = json.loads(json.dumps(plan_as_dict(plan)))
    assert set(document) == set(SmokePlan.__struct_fields__)
    assert all(set(layout) == set(Layout.__struct_fields__) for layout in document["layouts"])
    assert msgspec.convert(document, SmokePlan) == plan


def test_options_count_for_ranks_of_a_launcher_as_for_those_of_doctor() -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "w1", "MASTER_PORT": "29500"}
    context = detect(environ, as_rank=True)
    options = SmokeOptions(soak=60.0, environment="clean", native=True, library="mindspore")
    launched = build_launched_plan(context, [Hello(0, 1, "w1", 7)], (), options)
    smoke_plan = build_plan({"w1": PlanHost(slots=1)}, options)
    for name in ("soak", "budget", "environment", "stages", "library", "keep", "timeout"):
        assert getattr(launched, name) == getattr(smoke_plan, name), name
    assert launched.master_port == 29500
    trial = msgspec.structs.replace(options, keep=())
    assert build_launched_plan(context, [Hello(0, 1, "w1", 7)], (), trial).master_port == 0


def test_devices_that_the_environment_hides_are_left_unused_where_cpus_were_not_asked_for() -> None:
    """On an H200 with CUDA_VISIBLE_DEVICES=-1 the job over NCCL ended."""
    plan = build_plan({"w1": PlanHost(), "w2": PlanHost()}, SmokeOptions())
    hidden = {"w1": ["gpu"], "w2": []}
    assert left_unused(plan, SmokeOptions(), hidden) == {"w1": "GPU"}
    assert left_unused(plan, SmokeOptions(backend="gloo"), hidden) == {}
    on_devices = build_plan({"w1": PlanHost({"npu": (0,)}), "w2": PlanHost({"npu": (0,)})}, SmokeOptions())
    assert left_unused(on_devices, SmokeOptions(), hidden) == {}  # GPUs that hosts with NPUs have as well


def test_a_job_on_cpus_says_that_it_tells_nothing_of_the_gpus() -> None:
    plan = build_plan({"w1": PlanHost(hidden=["gpu"]), "w2": PlanHost()}, SmokeOptions())
    assert plan.backend == "gloo"
    (note,) = allocation_notes(plan, SmokeOptions(), {"w1": ["gpu"], "w2": []})
    assert note == "Slurm has allocated this job no GPU of w1: its ranks ran on CPUs, and the GPUs were not tested"
    assert allocation_notes(plan, SmokeOptions(backend="gloo"), {"w1": ["gpu"]}) == []
