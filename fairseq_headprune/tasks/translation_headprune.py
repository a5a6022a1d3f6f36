"""The translation task with head masks: training, validation and generation under ``--head-mask``."""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_headprune.models.starting import state_to_start_from
from fairseq_headprune.stored.dictionaries import differing_sides, hash_symbols, noted_hashes
from fairseq_headprune.tasks.gated import HEAD_MASK_HELP, GatedTask
from fairseq_headprune.tasks.imported import ImportedModels


@dataclass
class TranslationHeadpruneConfig(TranslationConfig):
    """Settings of the translation task, and the mask."""

    head_mask: Optional[str] = field(default=None, metadata={"help": HEAD_MASK_HELP})


@register_task("translation_headprune", dataclass=TranslationHeadpruneConfig)
class TranslationHeadpruneTask(GatedTask, ImportedModels, TranslationTask):
    """Translate with a model whose attention heads are gated.

    Any fairseq model made of ``MultiheadAttention`` gets gates, stock architectures too. The mask is stored beside the
    weights so that a program without the gates refuses the checkpoint instead of ignoring the mask.
    """

    cfg: TranslationHeadpruneConfig

    def build_model(self, cfg, from_checkpoint: bool = False):
        """Build the model.

        Raises:
            ValueError: as for every gated task, or the training starts from a checkpoint of other dictionaries.
        """
        if not from_checkpoint:
            run = self._settings_of_run()
            start = state_to_start_from(cfg if run is None else run.checkpoint)
            check_dictionaries(self, {} if start is None else noted_hashes(start), self.cfg.data)
        return super().build_model(cfg, from_checkpoint)

    def state_dict(self) -> dict:
        """Return what a checkpoint keeps of the task: its dictionaries' hashes, the mask in force and its origin."""
        return {**super().state_dict(), "dictionaries": dictionary_hashes(self)}

    def load_state_dict(self, state_dict: dict) -> None:
        """Take over the state.

        Raises:
            ValueError: the checkpoint was trained with other dictionaries.
        """
        state = dict(state_dict)
        check_dictionaries(self, state.pop("dictionaries", {}), self.cfg.data)
        super().load_state_dict(state)

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Translate one batch, with the same check."""
        for model in models:
            self.check_mask(model, sample)
        return super().inference_step(generator, models, sample, prefix_tokens, constraints)

    def net_input(self, sample: dict) -> dict:
        """Give sentences without a translation (fairseq-interactive) the start of one."""
        net_input = sample["net_input"]
        if "prev_output_tokens" in net_input:
            return net_input
        source = net_input["src_tokens"]
        return {**net_input, "prev_output_tokens": source.new_full((len(source), 1), self.target_dictionary.eos())}


def dictionary_hashes(task: TranslationTask) -> dict[str, str]:
    """Hash each dictionary's entries in their order: equal sizes do not make equal dictionaries."""
    sides = {"source": task.source_dictionary, "target": task.target_dictionary}
    return {side: hash_symbols(dictionary.symbols) for side, dictionary in sides.items()}


def check_dictionaries(task: TranslationTask, noted: dict[str, str], data: str) -> None:
    """Compare with the hashes that a checkpoint notes, if any.

    Raises:
        ValueError: the checkpoint was trained with other dictionaries.
    """
    differing = differing_sides(noted, dictionary_hashes(task))
    if differing:
        raise ValueError(
            f"the {differing} dictionary in {data} differs from the one the checkpoint was trained with: "
            "use the data folder it was trained on"
        )
