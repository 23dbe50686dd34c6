"""Resumed trainings that lose one thing each, and healthy ones: ``python -m tests.watch.resume_campaign``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from doctor.engine.watch_summary import ResumeReport
from doctor.watch.resume.live_resume import LiveResume
from tests.watch.data_campaign import Ranks, source_of


class Resume(NamedTuple):
    """Patches of the run that saves, and of the one that goes on; and which kinds of difference name what is lost."""

    resumed: tuple[tuple[str, str], ...] = ()
    kinds: frozenset[str] = frozenset()
    """Any of them; empty: a healthy one."""
    saving: tuple[tuple[str, str], ...] = ()
    program: str = "resumed"
    worlds: tuple[int, int] = (2, 2)
    command: str = "torchrun train.py"


def lost(kinds: str, *resumed: tuple[str, str], **more: object) -> Resume:
    return Resume(resumed, frozenset(kinds.split()), **more)  # type: ignore[arg-type]


LOAD_OPTIMIZER = 'optimizer.load_state_dict(kept["optimizer"])'
LOAD_SCHEDULER = 'scheduler.load_state_dict(kept["scheduler"])'
LOAD_MODEL = 'model.module.load_state_dict(kept["model"])'
FILLS_STATES = "from torch.distributed.checkpoint.state_dict import get_state_dict; get_state_dict(model, optimizer); "
"""Makes the optimizer's states by a step of its own, before anything is loaded."""
LOAD_SCALER = 'scaler.load_state_dict(kept["scaler"])'
SET_TORCH = 'torch.set_rng_state(own["torch"])'
SET_PYTHON = 'random.setstate(own["python"])'
POSITION = 'step, epoch = kept["step"], kept["step"] // STEPS_OF_EPOCH'
END = "# load: end"
NO_SAMPLER_EPOCH = ("sampler.set_epoch(epoch)", "pass")
LATE = ("SAVE_AT, LAST = 6, 9", "SAVE_AT, LAST = 16, 19")
"""Saves at the end of the first epoch."""
PLAIN = (
    ("model = DistributedDataParallel(inner)", "model = type('Plain', (torch.nn.Module,), {'forward': lambda self, x: self.module(x)})()\nmodel.module = inner"),
    ("scaler.scale(loss).backward()", "scaler.scale(loss).backward()\n        "
     "[dist.all_reduce(p.grad, dist.ReduceOp.AVG) for p in inner.parameters()]"),
)  # fmt: skip
OPEN_STEP = (
    ("        optimizer.zero_grad()\n", ""),
    ("scaler.scale(loss).backward()", "loss.backward()"),
    ("        scaler.step(optimizer)\n        scaler.update()\n        scheduler.step()\n",
     "        if step % 4 == 3:\n            optimizer.step()\n            scheduler.step()\n            optimizer.zero_grad()\n"),
    ("# save\n", "# save\n            content['grads'] = [p.grad for p in inner.parameters()]\n"),
)  # fmt: skip
"""Four batches are a step: the save, after the sixth, has the gradients of two that no step has used."""
SCHEDULER = "scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)"
AVERAGED = (
    (SCHEDULER, SCHEDULER + "\nfrom torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn\n"
     "average = AveragedModel(inner, multi_avg_fn=get_ema_multi_avg_fn(0.9))"),
    ("scheduler.step()\n", "scheduler.step()\n        average.update_parameters(inner)\n"),
    ("# save\n", "# save\n            content['average'] = average.state_dict()\n"),
)  # fmt: skip
LOAD_AVERAGE = (END, "average.load_state_dict(kept['average'])\n    # load: end")
SHADOW = (
    (SCHEDULER, SCHEDULER + "\nshadow = {name: value.detach().clone() for name, value in inner.named_parameters()}"),
    ("scheduler.step()\n", "scheduler.step()\n        for name, value in inner.named_parameters(): "
     "shadow[name].mul_(0.8).add_(value.detach(), alpha=0.2)\n"),
    ("# save\n", "# save\n            content['shadow'] = shadow\n"),
)  # fmt: skip
HELD = (
    ("import torch\n", "import numpy as np\nimport torch\n"),
    (
        SCHEDULER,
        SCHEDULER + "\nclass Noise: pass\nnoise = Noise()\n"
        "noise.own, noise.numpy, noise.python = torch.Generator().manual_seed(6), np.random.default_rng(7), random.Random(8)",
    ),
    (
        "random.random()",
        "random.random(); torch.rand(2, generator=noise.own); noise.numpy.random(); noise.python.random()",
    ),
    (
        "# save\n",
        "# save\n            content['held'] = noise.own.get_state(), noise.numpy.bit_generator.state, noise.python.getstate()\n",
    ),
)
"""Generators that an object of the program holds."""
LOAD_HELD = (
    END,
    "noise.own.set_state(kept['held'][0]); noise.numpy.bit_generator.state = kept['held'][1]\n    "
    "noise.python.setstate(kept['held'][2])\n    # load: end",
)
MADE_ANEW = (
    END,
    "shadow = {name: value.detach().clone() for name, value in inner.named_parameters()}\n    # load: end",
)
LOAD_SHADOW = (END, "for name, value in kept['shadow'].items(): shadow[name].copy_(value)\n    # load: end")
NUMPY = (
    ("import torch\n", "import numpy as np\nimport torch\n"),
    ("random.random()", "random.random(); np.random.random(3)"),
    ("random.seed(2 + rank + 100 * goes_on)", "random.seed(2 + rank + 100 * goes_on)\nnp.random.seed(4 + rank + 100 * goes_on)"),
    ('"python": random.getstate()', '"python": random.getstate(), "numpy": np.random.get_state()'),
)  # fmt: skip
LOAD_NUMPY = (SET_PYTHON, SET_PYTHON + "\n    np.random.set_state(own['numpy'])")
SHUFFLED = (
    ("sampler=sampler)", "shuffle=True, generator=(own_order := torch.Generator().manual_seed(5)))"),
    ("sampler.set_epoch(epoch)", "own_order.manual_seed(5 + epoch)"), LATE,
)  # fmt: skip
TWO_SCHEDULERS = (
    (SCHEDULER, SCHEDULER + "\nother = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)"),
    ("scheduler.step()\n", "scheduler.step()\n        other.step()\n"),
    ("# save\n", "# save\n            content['other'] = other.state_dict()\n"),
)  # fmt: skip
AMSGRAD = ("AdamW(model.parameters(), lr=0.01)", "AdamW(model.parameters(), lr=0.01, amsgrad=True)")
NADAM = ("AdamW(model.parameters(), lr=0.01)", "NAdam(model.parameters(), lr=0.01)")
MOMENTUM = ("AdamW(model.parameters(), lr=0.01)", "SGD(model.parameters(), lr=0.01, momentum=0.9)")
EACH = "[s.update({k: %s for k, v in s.items()}) for s in optimizer.state.values()]"
LOST: dict[str, Resume] = {
    "the count of an average": lost(
        "average-count", *AVERAGED, (END, "average.module.load_state_dict({k[7:]: v for k, v in kept['average'].items() if k != 'n_averaged'})\n    # load: end"),
        saving=AVERAGED,
    ),
    "an AveragedModel made anew": lost("average", *AVERAGED, saving=AVERAGED),
    "an AveragedModel that no checkpoint holds": lost("average", *AVERAGED[:2], saving=AVERAGED[:2]),
    "a dictionary of averages": lost("unapplied", *SHADOW, saving=SHADOW),
    "averages that are made anew after loading": lost("copy", *SHADOW[:2], MADE_ANEW, saving=SHADOW[:2]),
    "generators that the program holds": lost("generators-own", *HELD[:3], saving=HELD),
    "generator of numpy": lost("generators", *NUMPY, saving=NUMPY),
    "order of a loader's own generator": lost(
        "data-epoch data-repeated data-again data-other", *SHUFFLED[:1], ("sampler.set_epoch(epoch)", "own_order.manual_seed(5)"),
        ("skip = step % STEPS_OF_EPOCH", "skip = 0"), saving=SHUFFLED,
    ),
    "epochs of the scheduler, by hand": lost("scheduler", (END, "scheduler.last_epoch = 0")),
    "step count of one parameter": lost("steps", (END, "next(iter(optimizer.state.values()))['step'].zero_()")),
    "states in half precision": lost("cast", MOMENTUM, (END, EACH % "v.bfloat16() if v.dim() else v"), saving=(MOMENTUM,)),
    "no scaler is used": lost("scaler-gone", ('GradScaler("cpu", ', 'GradScaler("cpu", enabled=False, '), (LOAD_SCALER, "pass")),
    "no scheduler is used": lost(
        "scheduler-gone", (SCHEDULER, "scheduler = None"), ("        scheduler.step()\n", ""), (LOAD_SCHEDULER, "pass"),
    ),
    "the second of two schedulers": lost("scheduler", *TWO_SCHEDULERS, saving=TWO_SCHEDULERS),
    "largest second moments": lost(
        "moments", AMSGRAD, (END, "for s in optimizer.state.values(): s['max_exp_avg_sq'].zero_()"), saving=(AMSGRAD,)
    ),
    "a number that the optimizer keeps of each parameter": lost(
        "moments", NADAM, (END, "for s in optimizer.state.values(): s['mu_product'].fill_(1)"), saving=(NADAM,)
    ),
    "counts of batches": lost("buffers", (END, "[b.zero_() for n, b in inner.named_buffers() if 'tracked' in n]")),
    "gradients of an open step": lost("gradients", *OPEN_STEP, saving=OPEN_STEP),
    "a frozen layer is trained": lost(
        "unfrozen", saving=(("model = DistributedDataParallel(inner)",
                             "inner[0].requires_grad_(False)\nmodel = DistributedDataParallel(inner)"),),
    ),
    "modules stay in evaluation mode": lost("evaluating", (END, "inner.eval()")),
    "other seeds are set after loading": lost("generators", (END, "torch.manual_seed(77)")),
    "optimizer not loaded": lost("moments-new", (LOAD_OPTIMIZER, "pass")),
    "states are made, and not loaded": lost(
        "moments-new", (LOAD_MODEL, FILLS_STATES + LOAD_MODEL), (LOAD_OPTIMIZER, "pass")
    ),
    "optimizer not saved": lost(
        "moments-new", (LOAD_OPTIMIZER, "pass"), saving=(('"optimizer": optimizer.state_dict(),', ""),)
    ),
    "scheduler not loaded": lost("scheduler rate-restart", (LOAD_SCHEDULER, "pass")),
    "scheduler not saved": lost(
        "scheduler rate-restart", (LOAD_SCHEDULER, "pass"), saving=(('"scheduler": scheduler.state_dict(),', ""),)
    ),
    "scaler not loaded": lost("scaler", (LOAD_SCALER, "pass")),
    "steps of the scaler": lost(
        "scaler-steps", (LOAD_SCALER, 'scaler.load_state_dict({**kept["scaler"], "_growth_tracker": 0})')
    ),
    "position not loaded": lost("data-again data-repeated", ("skip = step % STEPS_OF_EPOCH", "skip = 0")),
    "one batch again": lost("data-repeated", ("skip = step % STEPS_OF_EPOCH", "skip = step - 1")),
    "position of one rank": lost(
        "data-again data-repeated", ("skip = step % STEPS_OF_EPOCH", "skip = 0 if rank else step")
    ),
    "another seed of the sampler": lost("data-repeated data-other", ("seed=3", "seed=3 + goes_on")),
    "epoch of the sampler": lost(
        "data-epoch", ("skip = step % STEPS_OF_EPOCH", "skip = 0"), ("sampler.set_epoch(epoch)", "pass"), saving=(LATE,)
    ),
    "generator of torch": lost("generators", (SET_TORCH, "pass")),
    "generator of python": lost("generators", (SET_PYTHON, "pass")),
    "generator of torch, of a rank that does not save": lost("generators", (SET_TORCH, "rank == 1 or " + SET_TORCH)),
    "generators of no rank": lost("generators", (SET_TORCH, "pass"), (SET_PYTHON, "pass")),
    "generators of rank 0 everywhere": lost("generators-rank", ('["generators"][rank]', '["generators"][0]')),
    "generators of the next rank": lost(
        "generators-rank", ('["generators"][rank]', '["generators"][(rank + 1) % world]')
    ),
    "a layer not loaded": lost(
        "parameters", (LOAD_MODEL, "model.module.load_state_dict({k: v for k, v in kept['model'].items() if k[0] != '3'},"
                       " strict=False)")
    ),
    "a bias not loaded": lost(
        "parameters", (LOAD_MODEL, "model.module.load_state_dict({k: v for k, v in kept['model'].items() if k != '3.bias'}"
                       ", strict=False)")
    ),
    "names with a prefix": lost(
        "parameters-none", (LOAD_MODEL, "model.module.load_state_dict({'m.' + k: v for k, v in kept['model'].items()},"
                            " strict=False)")
    ),
    "buffers not loaded": lost(
        "buffers", (LOAD_MODEL, "model.module.load_state_dict({k: v for k, v in kept['model'].items() if 'running' not in"
                    " k}, strict=False)")
    ),
    "second moments": lost("moments", (END, "for s in optimizer.state.values(): s['exp_avg_sq'].zero_()")),
    "first moments": lost("moments", (END, "for s in optimizer.state.values(): s['exp_avg'].zero_()")),
    "moments of one parameter": lost(
        "moments", (END, "optimizer.state.pop(optimizer.param_groups[0]['params'][2])")
    ),
    "moments in another order": lost(
        "moments", (LOAD_OPTIMIZER, "s = kept['optimizer']['state']; s[1], s[5] = s[5], s[1]; s[1], s[5] = "
                    "{k: v.clone() if v.dim() == 0 else torch.ones(16) * v.mean() for k, v in s[1].items()}, "
                    "{k: v.clone() if v.dim() == 0 else torch.ones(4) * v.mean() for k, v in s[5].items()}; "
                    "optimizer.load_state_dict(kept['optimizer'])")
    ),
    "step count of the optimizer": lost("steps", (END, "for s in optimizer.state.values(): s['step'].zero_()")),
    "parameters in half precision": lost(
        "parameters parameters-none", (LOAD_MODEL, "model.module.load_state_dict({k: v.bfloat16() if v.dim() else v for k, v in kept['model'].items()})")
    ),
    "optimizer made after loading": lost(
        "moments-new", (END, "optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)")
    ),
    "momentum of SGD": lost(
        "moments-new", (LOAD_OPTIMIZER, "pass"), ("AdamW(model.parameters(), lr=0.01)", "SGD(model.parameters(), lr=0.01, momentum=0.9)"),
        saving=(("AdamW(model.parameters(), lr=0.01)", "SGD(model.parameters(), lr=0.01, momentum=0.9)"),),
    ),
    "scheduler stepped before loading": lost(
        "scheduler", (END, "scheduler.step()\n    scheduler.step()"),
    ),
    "optimizer and position, without a wrapper": lost(
        "moments-new", (LOAD_OPTIMIZER, "pass"), (LOAD_SCHEDULER, "pass"), (LOAD_SCALER, "pass"), (SET_TORCH, "pass"),
        (SET_PYTHON, "pass"), ("skip = step % STEPS_OF_EPOCH", "skip = 0"), *PLAIN, saving=PLAIN,
    ),
    "an average of the parameters": lost(
        "unapplied", ('average.load_state_dict(kept["average"])', "pass"), program="averaged"
    ),
    "an average that is the parameters": lost(
        "unapplied", ('average.load_state_dict(kept["average"])', 'average.load_state_dict(kept["model"])'),
        program="averaged",
    ),
    "moments of one rank": lost(
        "moments", ('optimizer.load_state_dict(kept["optimizer"])', 'rank or optimizer.load_state_dict(kept["optimizer"])'),
        program="averaged",
    ),
    "parameters given anew": lost(
        "parameters-replaced", (END, 'inner.load_state_dict(kept["model"], assign=True)'), program="averaged"
    ),
    "a scheduler that looks at the loss": lost(
        "scheduler", ('plateau.load_state_dict(kept["plateau"])', "pass"), program="averaged"
    ),
    "generators of rank 0, of a save at the end": lost(
        "generators-rank", ('["generators"][rank]', '["generators"][0]'), saving=(("SAVE_AT, LAST = 6, 9", "SAVE_AT, LAST = 6, 6"),)
    ),
    "a stage of a pipeline": lost(
        "parameters", ('stage.load_state_dict(kept["stage"])', 'rank == 1 or stage.load_state_dict(kept["stage"])'),
        program="staged",
    ),
    "moments of a stage": lost(
        "moments", ('optimizer.load_state_dict(kept["optimizer"])', 'rank == 1 or optimizer.load_state_dict(kept["optimizer"])'),
        program="staged",
    ),
    "an optimizer's own copies": lost(
        "moments", ('copy.copy_(kept["copies"][number])', "pass"), program="staged", saving=(("COPIES = False", "COPIES = True"),)
    )._replace(resumed=(('copy.copy_(kept["copies"][number])', "pass"), ("COPIES = False", "COPIES = True"))),
    "seeds are set after loading": lost(
        "generators", (END, "torch.manual_seed(1 + rank); random.seed(2 + rank)"),
    ),
    "position with more ranks": lost(
        "data-repeated", ("skip = step % STEPS_OF_EPOCH", "skip = 0"), ('["generators"][rank]', '["generators"][0]'),
        ("2 * STEPS_OF_EPOCH * world", "2 * STEPS_OF_EPOCH * 2"), worlds=(2, 3),
    ),
}  # fmt: skip
SEEDS_EACH_STEP = ("random.random()\n", "random.seed(step); torch.manual_seed(step); random.random()\n")
HEALTHY: dict[str, Resume] = {
    "generators that each step seeds": Resume(
        (SEEDS_EACH_STEP, (SET_TORCH, "pass"), (SET_PYTHON, "pass")), saving=(SEEDS_EACH_STEP,)
    ),
    "an AveragedModel": Resume((*AVERAGED, LOAD_AVERAGE), saving=AVERAGED),
    "an AveragedModel that begins later": Resume(AVERAGED),
    "an AveragedModel that is used later": Resume((AVERAGED[0], LOAD_AVERAGE), saving=(AVERAGED[0], AVERAGED[2])),
    "a dictionary of averages": Resume((*SHADOW, LOAD_SHADOW), saving=SHADOW),
    "generators that the program holds": Resume((*HELD, LOAD_HELD), saving=HELD),
    "a file that is read twice": Resume(
        (*SHADOW, (END, "shadow = kept['shadow']\n    again = torch.load(path, weights_only=False); del again\n    "
                   "others = [value * 2 + 1 for value in shadow.values()]\n    # load: end")), saving=SHADOW,
    ),
    "generator of numpy": Resume((*NUMPY, LOAD_NUMPY), saving=NUMPY),
    "two schedulers": Resume((*TWO_SCHEDULERS, (END, "other.load_state_dict(kept['other'])")), saving=TWO_SCHEDULERS),
    "another kind of scheduler": Resume(
        ((SCHEDULER, "scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0, 5)"), (LOAD_SCHEDULER, "pass")),
    ),
    "a number that the optimizer keeps of each parameter": Resume((NADAM,), saving=(NADAM,)),
    "largest second moments": Resume((AMSGRAD,), saving=(AMSGRAD,)),
    "gradients of an open step are kept": Resume(
        (*OPEN_STEP, (END, "for p, grad in zip(inner.parameters(), kept['grads']): p.grad = grad")), saving=OPEN_STEP
    ),
    "an open step is made again": Resume(
        (*OPEN_STEP, (POSITION, "step, epoch = kept['step'] // 4 * 4, 0")), saving=OPEN_STEP
    ),
    "a layer that was frozen at first": Resume(
        saving=(("model = DistributedDataParallel(inner)", "inner[0].requires_grad_(False)\n"
                 "model = DistributedDataParallel(inner, find_unused_parameters=True)"),
                ("random.random()", "random.random()\n        step == 3 and inner[0].requires_grad_(True)")),
    ),
    "nothing is lost": Resume(),
    "a batch that nothing was learnt from": Resume(
        saving=(("enumerate(loader)", "enumerate(batches := iter(loader))"), ("# save\n", "# save\n            next(batches)\n")),
    ),
    "a tensor without values": Resume(((END, "shape_alone = torch.empty(16, 8, device='meta')"),)),
    "an average, and two schedulers": Resume(program="averaged"),
    "an average that has moved on": Resume(
        ((END, "[a.mul_(0.9).add_(b.detach(), alpha=0.1) for a, b in zip(average.parameters(), inner.parameters())]"),),
        program="averaged",
    ),
    "stages of a pipeline": Resume(program="staged"),
    "states are made, then loaded": Resume(((LOAD_MODEL, FILLS_STATES + LOAD_MODEL),)),
    "without a wrapper": Resume(PLAIN, saving=PLAIN),
    "fine-tuning with a new optimizer": Resume(
        ((LOAD_OPTIMIZER, "pass"), (LOAD_SCHEDULER, "pass"), (LOAD_SCALER, "pass"), (SET_TORCH, "pass"),
         (SET_PYTHON, "pass"), (POSITION, "step, epoch = 0, 0"), ("seed=3", "seed=8")),
        command="torchrun finetune.py",
    ),
    "a new head": Resume(
        ((LOAD_MODEL, "model.module.load_state_dict({k: v for k, v in kept['model'].items() if k[0] != '3'}, strict=False)"),
         (LOAD_OPTIMIZER, "pass"), (LOAD_SCHEDULER, "pass"), (LOAD_SCALER, "pass"), (SET_TORCH, "pass"),
         (SET_PYTHON, "pass"), (POSITION, "step, epoch = 0, 0")),
        command="torchrun finetune.py",
    ),
    "another learning rate": Resume(
        ((END, "for g in optimizer.param_groups: g['lr'] = 0.003\n    scheduler.base_lrs = [0.003]"),),
    ),
    "another weight decay": Resume(((END, "for g in optimizer.param_groups: g['weight_decay'] = 0.2"),)),
    "an average of the parameters": Resume(
        ((END, "with torch.no_grad():\n        for p in model.parameters(): p.mul_(0.99)"),),
    ),
    "the next epoch": Resume(saving=(LATE,)),
    "no generators are kept": Resume(
        ((SET_TORCH, "pass"), (SET_PYTHON, "pass")), saving=(('"generators": generators,', '"generators": [{"torch": 0, "python": 0}] * world,'),),
    ),
    "another number of ranks": Resume(
        (('["generators"][rank]', '["generators"][0]'), ("skip = step % STEPS_OF_EPOCH", "skip = 4"),
         ("2 * STEPS_OF_EPOCH * world", "2 * STEPS_OF_EPOCH * 2"), ("DistributedSampler(rows, world, rank, shuffle=True, seed=3)", "DistributedSampler(rows, world, rank, shuffle=False)")),
        saving=(("DistributedSampler(rows, world, rank, shuffle=True, seed=3)", "DistributedSampler(rows, world, rank, shuffle=False)"),),
        worlds=(2, 3),
    ),
    "a training of its own": Resume(
        ((LOAD_MODEL, "pass"), (LOAD_OPTIMIZER, "pass"), (LOAD_SCHEDULER, "pass"), (LOAD_SCALER, "pass"), (SET_TORCH, "pass"), (SET_PYTHON, "pass"),
         ("kept = torch.load(path, weights_only=False)", "kept = {'generators': [0, 0], 'step': 0, 'epoch': 0}")),
    ),
}  # fmt: skip


class ResumeRuns:
    """Runs pairs of a training that saves and one that goes on; equal first runs are made once."""

    def __init__(self) -> None:
        self.ranks = Ranks()
        self._folder = tempfile.TemporaryDirectory()
        self._saved: dict[object, Path] = {}

    def close(self) -> None:
        self.ranks.close()
        self._folder.cleanup()

    def report(self, case: Resume) -> ResumeReport | None:
        """What the resumed training is said to have lost."""
        saved = self._first(case)
        with tempfile.TemporaryDirectory() as folder:
            source = _patched(source_of(case.program), case.resumed)
            self._run(source, case.worlds[1], folder, saved, "1")
            return _seen(Path(folder), saved, case.command)

    def _first(self, case: Resume) -> Path:
        key = case.saving, case.program, case.worlds[0]
        if key not in self._saved:
            place = self._saved[key] = Path(self._folder.name, str(len(self._saved)))
            (place / "marks").mkdir(parents=True)
            source = _patched(source_of(case.program), case.saving)
            self._run(source, case.worlds[0], str(place / "marks"), place, "0")
            _seen(place / "marks", place, "torchrun train.py")
        return self._saved[key]

    def _run(self, source: str, world: int, folder: str, place: Path, goes_on: str) -> None:
        answer = self.ranks.run(source, world, folder, CHECKPOINT=str(place / "ck.pt"), GOES_ON=goes_on)
        if any(answer["codes"]):
            raise RuntimeError(f"exit codes {answer}")


def _seen(folder: Path, state: Path, command: str) -> ResumeReport | None:
    live = LiveResume(folder, {"XDG_STATE_HOME": str(state)}, command, "host")
    live.look(is_last=True)
    return live.report


def _patched(source: str, patches: tuple[tuple[str, str], ...]) -> str:
    for old, new in patches:
        assert old in source, old
        source = source.replace(old, new)
    return source


def is_right(case: Resume, report: ResumeReport | None) -> bool:
    """Whether what was lost is named, and nothing is called an error that was meant."""
    rows = report.differences if report else ()
    if not case.kinds:
        return not any(row.level == "error" for row in rows)
    return any(row.kind in case.kinds for row in rows)


def main() -> None:
    """All of them, or those that are named."""
    runs = ResumeRuns()
    right = {"lost": 0, "healthy": 0}
    for title, cases in (("lost", LOST), ("healthy", HEALTHY)):
        for name, case in cases.items():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            try:
                report = runs.report(case)
            except RuntimeError as error:
                print(f"{name}: {str(error)[:1500]}", flush=True)
                continue
            good = is_right(case, report)
            right[title] += good
            rows = (
                [f"{row.level} {row.kind} {row.ranks or ''}" for row in report.differences] if report else "no resume"
            )
            print(
                f"{'right' if good else 'WRONG'} {title} {name}: {rows} {report.uncompared if report else ''}",
                flush=True,
            )
    runs.close()
    print(right, len(LOST), len(HEALTHY))


if __name__ == "__main__":
    main()
