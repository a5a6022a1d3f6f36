"""Trainings and translations of a comparison in one flow. Processes and time are made up, the scheduler is real."""

import json
from pathlib import Path

import pytest
from clock import Clock

from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.jobs.scheduler import LOOK
from fairseq_headprune.jobs.training import Run
from fairseq_headprune.parts import Mask
from fairseq_headprune.studies.pruners import answers
from fairseq_headprune.studies.pruners.answers import MadeMask, random_mask
from fairseq_headprune.studies.pruners.flow import Flow
from fairseq_headprune.studies.pruners.study import ComparePruners, Plan
from fairseq_headprune.studies.pruners.trainings import Translating

SHAPE = {"enc_self": [4, 4], "enc_dec": [4]}
ALL = {"train", "translate"}
METHODS = (
    "unpruned,unpruned+tuned,michel,michel+tuned,random-after,random-after+tuned,pipelined-dsp,pipelined-dsp+tuned,"
)
METHODS += "joint-dsp,random-start,random-start+long,learned-start"


class Task(Translating):
    """Data of no files."""

    def hashes(self, data, splits):
        return {}


class Toy:
    """A comparison whose processes only write what trainings and translations would write."""

    def __init__(self, folder, methods=METHODS, failing=(), **more):
        plan = {"counts": [5, 2], "seeds": [1, 2], "updates": 20, "tune": 8, "splits": ["test"], **more}
        self.path = folder
        self.study = ComparePruners(Plan("data", [], [], SHAPE, Task(), methods=methods.split(","), **plan))
        self.study.open(folder)
        self.lengths = {training.name: training.updates for training in self.study.trainings}
        self.failing, self.took = failing, {}

    def run(self, at_once, stages=ALL, limit=None, shares=None):
        """Return the clock, when all is done."""
        flow, clock = Flow(self.study, at_once, shares), Clock(self._seconds, self._end)
        with clock.instead():
            self.told = list(flow.run(stages, limit))
        return clock

    def _seconds(self, name):
        if name not in self.lengths:
            return 1 + 0.5 * len(read_json(self.path / "jobs" / f"{name}.json")["cells"])
        return 3 if name.startswith("pipelined") and "tuned" not in name else self.lengths[name]

    def _end(self, name):
        if name in self.failing:
            return 1
        if name in self.lengths:
            run = Run(self.path, f"runs/{name}")
            write_json(run.facts, {"updates": 1})
            run.best.touch()
            return 0
        cells = self.took[name] = read_json(self.path / "jobs" / f"{name}.json")["cells"]
        if not all((self.path / cell["checkpoint"]).exists() for cell in cells):
            return 1
        for cell in cells:
            assert cell["training"] or cell["method"] in ("michel", "random-after")
            heads = random_mask(SHAPE, cell["count"] or 12, cell["seed"])
            self.study.folder.write_mask(cell["id"], heads.to_dict())
            self.study.folder.append(cell)
        return 0


@pytest.fixture(autouse=True)
def learned_heads(monkeypatch):
    """What a training learned, without a checkpoint."""
    monkeypatch.setattr(answers, "learned_mask", lambda path, count: MadeMask(random_mask(SHAPE, count, 9), {}))


def needs(name):
    """What a training or cell waits for, by hand: trainings, and the cells of rankings."""
    if "@" in name:
        return (
            ["unpruned" + name[name.rindex("-") : -5]] if name.startswith(("michel-", "random-after-")) else [name[:-5]]
        )
    method, *_, seed = name.split("-") if "+" not in name else name.replace("+tuned", "").split("-")
    if name.startswith("unpruned+tuned"):
        return [f"unpruned-{seed}"]
    count = name.split("-")[-2]
    return {
        "michel+tuned": [f"unpruned-{seed}", f"michel-{count}-{seed}@test"],
        "random-after+tuned": [f"unpruned-{seed}"],
        "pipelined-dsp": [f"unpruned-{seed}"],
        "pipelined-dsp+tuned": [f"unpruned-{seed}", f"pipelined-dsp-{count}-{seed}"],
        "learned-start": [f"joint-dsp-{count}-{seed}"],
    }.get(name.rsplit("-", 2)[0], [])


@pytest.mark.parametrize("at_once", [1, 3, 7, 28])
def test_no_slot_is_idle_while_something_is_ready(tmp_path, monkeypatch, at_once):
    """By hand: what each needs; the times of starts and ends are the clock's."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    toy = Toy(tmp_path / "study")
    clock = toy.run(at_once)
    began, ended = dict(clock.began), dict(clock.ended)
    for name, cells in toy.took.items():
        began |= {cell["id"]: clock.began[name] for cell in cells}
        ended |= {cell["id"]: clock.ended[name] for cell in cells}
    wanted = {*toy.lengths, *(cell.id for cell in toy.study.plan())}
    assert wanted <= began.keys() and toy.study.folder.cells().keys() == {name for name in wanted if "@" in name}
    for name in wanted:
        ready = max((ended[need] for need in needs(name)), default=0.0)
        assert ready <= began[name], name
        # While it could have started, all slots were in use; the scheduler looks every LOOK seconds.
        times = [time for time in {*began.values(), *ended.values()} if ready <= time < began[name]]
        assert all(clock.running(time + LOOK / 2) == at_once for time in times), name
        if "@" in name and not name.startswith("michel-"):
            # Nobody waits for it: no training was ready when its translation began.
            others = [other for other in toy.lengths if began[name] < began[other]]
            assert all(max(ended[need] for need in needs(other)) > began[name] - LOOK for other in others)
    assert all(chosen == min(each) for chosen, each in clock.spread)
    assert sum(stage == "train" for stage, _ in toy.told) == len(toy.lengths) == 36


def test_trainings_start_before_the_first_wave_has_ended(tmp_path):
    """By hand, 4 at once: what others wait for (two learned sets, then the unpruned model), then the longest."""
    toy = Toy(tmp_path / "study", seeds=[1])
    clock = toy.run(4)
    first = list(clock.began)[:4]
    assert first == ["joint-dsp-5-1", "joint-dsp-2-1", "unpruned-1", "random-start+long-5-1"]
    assert clock.began["learned-start-5-1"] < clock.ended["random-start+long-5-1"]
    # The ranking comes before all trainings that are ready by then.
    assert clock.began["translate-michel-1"] - clock.ended["unpruned-1"] <= LOOK
    assert list(clock.began)[4] == "translate-michel-1"
    # Equally long trainings are in the order of the table.
    tuned = [name for name in clock.began if name.startswith("random-after+tuned")]
    assert tuned == ["random-after+tuned-5-1", "random-after+tuned-2-1"]


def test_models_are_translated_by_few_processes_while_others_train(tmp_path):
    """By hand: a free slot takes its share of the models that are there, of one model all that fits."""
    toy = Toy(tmp_path / "study", "unpruned,ste,random-after", counts=[9, 8, 7, 6, 5, 4, 3, 2, 1], seeds=[1])
    toy.run(2)
    sizes = [len(cells) for cells in toy.took.values()]
    # The unpruned model with its nine random masks, and nine more.
    assert sum(sizes) == 19 and len(sizes) < 10 and max(sizes) >= 4
    alone = Toy(tmp_path / "alone", "unpruned,ste,random-after", counts=[9, 8], seeds=[1])
    alone.run(1)
    assert [len(cells) for cells in alone.took.values()] == [5]
    # Of two processes that help each other, one takes the unpruned model, and half of the rest each time.
    half = Toy(tmp_path / "half", "unpruned,ste,random-after", counts=[9, 8], seeds=[1])
    half.run(1, shares=2)
    assert [len(cells) for cells in half.took.values()] == [3, 1, 1]


def test_heads_are_those_of_the_source(tmp_path):
    """Source: the stand-ins for the masks of ranking and learning, and the random order of the seed."""
    toy = Toy(tmp_path / "study", seeds=[1])
    toy.run(5)
    expected = {
        "michel+tuned": random_mask(SHAPE, 5, 1),
        "random-after+tuned": random_mask(SHAPE, 5, 1),
        "learned-start": random_mask(SHAPE, 5, 9),
        "pipelined-dsp+tuned": random_mask(SHAPE, 5, 9),
    }
    for method, mask in expected.items():
        run = Run(toy.path, f"runs/{method}-5-1")
        assert Mask.load(run.mask) == mask and read_json(run.folder / "job.json")["mask"] == read_json(run.mask)


def test_a_stage_alone_does_what_needs_no_other(tmp_path):
    toy = Toy(tmp_path / "study", "unpruned,michel,michel+tuned,joint-dsp,learned-start", seeds=[1], counts=[5])
    assert {*toy.run(2, {"train"}).began} == {"unpruned-1", "joint-dsp-5-1", "learned-start-5-1"}
    again = toy.run(2, {"translate"})
    assert {cell["id"] for name in again.began for cell in toy.took[name]} == {
        "unpruned-1@test", "michel-5-1@test", "joint-dsp-5-1@test", "learned-start-5-1@test",
    }  # fmt: skip
    # Now the ranking is known.
    assert [*toy.run(2, {"train"}).began] == ["michel+tuned-5-1"]
    assert [*toy.run(2).began] == ["translate-michel+tuned-5-1"] and [*toy.run(2).began] == []


def test_a_failure_does_not_stop_the_others_and_is_done_again(tmp_path):
    toy = Toy(tmp_path / "study", "unpruned,michel,michel+tuned,ste", seeds=[1, 2], counts=[5], failing=["unpruned-2"])
    with pytest.raises(RuntimeError, match=r"1 failed \(unpruned-2\)"):
        toy.run(2)
    found = {name.partition("@")[0] for name in toy.study.folder.cells()}
    assert found == {"unpruned-1", "michel-5-1", "michel+tuned-5-1", "ste-5-1", "ste-5-2"}
    toy.failing = ()
    assert [*toy.run(1).began] == ["unpruned-2", "translate-michel-2", "michel+tuned-5-2", "translate-unpruned-2"]


def test_heads_of_a_model_whose_checkpoint_is_gone_stop_nothing_else(tmp_path):
    toy = Toy(tmp_path / "study", "unpruned,joint-dsp,learned-start", seeds=[1, 2], counts=[5])
    toy.failing = ["learned-start-5-1", "learned-start-5-2", "unpruned-1"]
    with pytest.raises(RuntimeError, match="3 failed"):
        toy.run(2, {"train"})
    toy.failing = ()
    Run(toy.path, "runs/joint-dsp-5-2").best.unlink()
    with pytest.raises(RuntimeError, match=r"1 failed \(translate-joint-dsp-5-2\)"):
        toy.run(2)
    found = {name.partition("@")[0] for name in toy.study.folder.cells()}
    assert found == {"unpruned-1", "unpruned-2", "joint-dsp-5-1", "learned-start-5-1"}


def test_what_another_process_has_is_left_to_it(tmp_path):
    toy = Toy(tmp_path / "study", "unpruned,michel,michel+tuned", seeds=[1], counts=[5])
    other = Claims(toy.path)
    assert other.take(["translate-michel-1"], tuple) == ["translate-michel-1"]
    with pytest.raises(TimeoutError, match="not done within 60 s: .*michel"):
        toy.run(2, limit=60)
    assert toy.study.folder.cells().keys() == {"unpruned-1@test"}
    other.release(["translate-michel-1"])
    assert [*toy.run(2).began] == ["translate-michel-1", "michel+tuned-5-1", "translate-michel+tuned-5-1"]
    claims = [json.loads(line)["cells"] for line in Path(toy.path / "claims.jsonl").read_text().splitlines()]
    assert ["translate-michel-1"] in claims
