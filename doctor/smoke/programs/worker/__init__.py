"""The program of every rank of a smoke run: Python 3.8 and later, torch, torch_npu for NPUs, nothing of `doctor`.

The parts are ordinary modules that are sent to hosts as one text; `doctor.smoke.run.programs` joins them. On the host
all parts share one namespace, so a name is defined by one part alone, and imports of other parts are left out.

A rank emits what it observes in events, one line of JSON each; it draws no conclusions.
"""

PARTS = (
    "host_texts",
    "connecting",
    "recorder_page",
    "secondary_errors",
    "cpu_quota",
    "process_groups",
    "orders",
    "libraries",
    "values",
    "flight_recorder",
    "comm",
    "context",
    "confirmations",
    "rng",
    "mesh",
    "collective_test",
    "group_search",
    "second_round",
    "stage_collectives",
    "stage_pairs",
    "batch",
    "optimizer_shards",
    "parameters",
    "model",
    "stage_training",
    "processes",
    "stage_loader",
    "work_timing",
    "stage_pace",
    "device_work",
    "stage_devices",
    "stage_soak",
    "rendezvous",
    "main",
)
"""In the order in which they are sent: a part uses, while it is loaded, only those before it."""

SHARED_PARTS = ("recorder_page", "cpu_quota", "secondary_errors", "process_groups")
"""Those that others have as well: modules of `doctor.smoke.programs`."""

RUNTIME_PARTS = ("host_texts", "connecting")
"""Those that every program on a host has: modules of `doctor.remote.runtime`."""

MINDSPORE_PARTS = ("mindspore_comm", "mindspore_rank")
"""Sent behind the others where the job's interpreter has MindSpore and no torch."""

NATIVE_PARTS = ("native_trainers", "stage_native")
"""Sent behind the others where the plan has the ``native`` stage."""
