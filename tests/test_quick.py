"""What an update asks of the host, in less time: the same settings and the same calls as fairseq's."""

import argparse
import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional

import bench_host
import benchmarks
import pytest
import tiny
import torch
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, MissingMandatoryValue

from fairseq_headprune.files import read_json
from fairseq_headprune.training.quick import QuickSettings, UpdateCount


class Kind(Enum):
    ONE = "one"


@dataclass
class Inner:
    number: int = 3
    kind: Kind = Kind.ONE
    twice: str = "${number}"
    needed: str = MISSING
    nothing: Optional[int] = None


@dataclass
class Outer:
    inner: Inner = field(default_factory=Inner)
    numbers: list = field(default_factory=lambda: [1, 2])
    text: str = "a"
    number: int = 7


def test_settings_are_read_as_omegaconf_reads_them():
    # Source: OmegaConf's own configuration of the same values.
    expected, found = OmegaConf.structured(Outer), OmegaConf.structured(Outer)
    QuickSettings.install(found)
    assert type(found) is QuickSettings and type(found.inner) is QuickSettings
    for name in ("number", "kind", "nothing", "twice"):
        assert getattr(found.inner, name) == getattr(expected.inner, name)
    assert found.inner.twice == "7" and found.numbers == [1, 2] and found.text == "a"
    for wrong, error in (("needed", MissingMandatoryValue), ("other", ConfigAttributeError)):
        with pytest.raises(error):
            getattr(expected.inner, wrong)
        with pytest.raises(error):
            getattr(found.inner, wrong)
    found.inner.number, found.number = 5, 8
    assert found.inner.number == 5 and found.inner.twice == "8"
    assert OmegaConf.to_container(copy.deepcopy(found)) == OmegaConf.to_container(found)
    plain = argparse.Namespace(number=1)
    QuickSettings.install(plain)
    QuickSettings.install(None)
    assert type(plain) is argparse.Namespace


def test_all_settings_of_fairseq_are_as_before():
    # Source: OmegaConf's own reading.
    def read(cfg):
        return {
            name: read(cfg._get_node(name)) if isinstance(cfg._get_node(name), DictConfig) else getattr(cfg, name)
            for name in cfg
            if cfg._get_node(name) is not None and not OmegaConf.is_missing(cfg, name)
        }

    args = argparse.Namespace(**bench_host.DATA)
    cfg = benchmarks.fairseq_settings(args, "transformer_iwslt_de_en")
    expected = read(cfg)
    QuickSettings.install(cfg)
    assert read(cfg) == expected and len(expected["common"]) > 20


class Counting(torch.nn.Linear):
    def set_num_updates(self, number):
        self.number = number


def test_the_number_of_updates_reaches_every_module_that_takes_it():
    # Source: fairseq's own way; an encoder passes it on to the modules in it.
    model = tiny.make_model()
    model.encoder.layers[0].counting, model.decoder.counting = Counting(1, 1), Counting(1, 1)
    model.set_num_updates(3)
    assert (model.encoder.layers[0].counting.number, model.decoder.counting.number) == (3, 3)
    UpdateCount.install(model)
    model.set_num_updates(4)
    assert (model.encoder.layers[0].counting.number, model.decoder.counting.number) == (4, 4)
    assert "set_num_updates" in vars(model)
    other = Counting(1, 1)
    UpdateCount.install(other)
    assert "set_num_updates" not in vars(other)


def test_the_benchmark_of_the_host_measures_both_parts(tmp_path, capsys):
    # By hand: two sides, two parts of an update, both above 0; a recorded pass is not run again.
    words = ["--sides", "no gates,dsp4", "--updates", "3", "--rounds", "2", "--output", tmp_path / "found.json"]
    tiny.run_main(bench_host, *words)
    rows = read_json(tmp_path / "found.json")["rows"]
    assert [row["side"] for row in rows] == ["no gates", "dsp4"] and "dsp4" in capsys.readouterr().out
    assert all(row[part]["min"] > 0 and row[part]["runs"] == 2 for row in rows for part in ("waits", "works"))
