"""The order in which the examples' results are made: who waits for whom, who has a GPU to itself, what resumes."""

import importlib.util
import sys

import pytest
import tiny


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(tiny.ROOT / "examples"))
    spec = importlib.util.spec_from_file_location("run_all", tiny.ROOT / "examples" / "run_all.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_all"] = module
    spec.loader.exec_module(module)
    return module


def test_every_need_is_an_earlier_step(script):
    seen = set()
    for step in script.STEPS:
        assert set(step.needs) | set(step.after) <= seen, step.name
        seen.add(step.name)


def test_steps_run_after_their_needs_and_resume(script, tmp_path):
    # Source: by hand; each step appends its name to one file.
    out = tmp_path / "order"
    step = lambda name, *needs: script.Step(name, f"echo {name} >>{out}", None, needs)  # noqa: E731
    steps = [step("c", "b"), step("a"), step("b", "a")]
    assert script.Runner(steps, tmp_path / "logs").run(20)
    assert out.read_text().split() == ["a", "b", "c"]
    (tmp_path / "logs" / "c.done").unlink()
    assert script.Runner(steps, tmp_path / "logs").run(20)
    assert out.read_text().split() == ["a", "b", "c", "c"]


def test_a_quiet_step_waits_for_its_gpu_and_keeps_later_ones_from_it(script, tmp_path):
    quiet, late, other = (
        script.Step("quiet", "true", 0, quiet=True),
        script.Step("late", "true", 0),
        script.Step("other", "true", 1),
    )
    runner = script.Runner([quiet, late, other], tmp_path)
    assert runner.next() is quiet
    # Something runs on GPU 0: the quiet step waits, the later one behind it too, GPU 1 goes on.
    runner._running["first"] = (script.Step("first", "true", 0), None, 0.0)
    assert runner.next() is other
    runner.waiting.remove(other)
    assert runner.next() is None
    # The quiet step runs: nothing else on its GPU.
    runner._running = {"quiet": (quiet, None, 0.0)}
    runner.waiting.remove(quiet)
    assert runner.next() is None
    runner._running = {}
    assert runner.next() is late


def test_a_failure_stops_what_needs_it_and_nothing_else(script, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("OUT", "/elsewhere")
    out = tmp_path / "ran"
    steps = [
        script.Step("bad", "exit 3"),
        script.Step("after", f"echo after >>{out}", None, ("bad",)),
        script.Step("good", f"echo ${{OUT:-none}} $CUDA_VISIBLE_DEVICES >>{out}", 1),
    ]
    steps.append(script.Step("later", f"echo later >>{out}", after=("bad", "good")))
    runner = script.Runner(steps, tmp_path / "logs")
    assert not runner.run(20) and runner.failed == ["bad", "after"]
    assert out.read_text() == "none 1\nlater\n"
    assert "after is left out: it needs bad" in capfd.readouterr().err
