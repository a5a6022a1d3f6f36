"""``--eval-bleu`` in a training: validation by the decoder of many masks. Reference: fairseq's generator."""

import learning
import pytest
import tiny
from fairseq.tasks.translation import TranslationTask
from logged import train

from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.tasks.translation_headprune import TranslationHeadpruneTask

TRAININGS = {
    "mask": ('{"beam": 4, "max_len_b": 12}', "--head-mask", "mask.json", "--cuda-graphs", "on"),
    "gates": ('{"beam": 2, "max_len_a": 1.2, "max_len_b": 3}', *learning.DSP, "--heads-kept", "4"),
    "greedy": ('{"beam": 1, "lenpen": 0.3, "max_len_b": 12, "min_len": 3}', "--batch-size-valid", "3"),
    "n-grams": ('{"beam": 2, "max_len_b": 12, "no_repeat_ngram_size": 2}',),  # not possible there
}


@pytest.mark.parametrize("search", TRAININGS)
def test_translations_are_those_of_fairseqs_generator(lively, tmp_path, recorded, monkeypatch, search):
    monkeypatch.chdir(tmp_path)
    Mask.full(tiny.SHAPE).without([Part("enc_self", 0, 1), Part("dec_self", 1, 0)]).save("mask.json")
    translate, found, of_fairseq = TranslationHeadpruneTask.inference_step, [], []

    def both(task, generator, models, sample, **more):
        mine = translate(task, generator, models, sample, **more)
        expected = TranslationTask.inference_step(task, generator, models, sample, **more)
        found.extend(best[0]["tokens"].tolist() for best in mine)
        of_fairseq.extend(best[0]["tokens"].tolist() for best in expected)
        assert (search == "n-grams") == ("score" in mine[0][0])  # whose answer it is
        return mine

    monkeypatch.setattr(TranslationHeadpruneTask, "inference_step", both)
    arguments, *more = TRAININGS[search]
    more = [*more, "--eval-bleu", "--eval-bleu-args", arguments, "--valid-subset", "valid,test", "--lr", "1e-3"]
    train(lively["data"], tmp_path / "run", *more, "--finetune-from-model", lively["checkpoint"])
    # Two splits of 8 sentences, after each of three epochs.
    assert found == of_fairseq and len(found) == 48 and len(set(map(tuple, found))) > 5
