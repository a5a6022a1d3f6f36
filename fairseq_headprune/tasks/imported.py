"""What a translation task does for imported models: their dictionaries, and the token that translations begin with."""

from typing import Any

from fairseq.data import Dictionary

from fairseq_headprune.evaluation.forcing import ForcingGenerator
from fairseq_headprune.imports.dictionary import ImportedDictionary


class ImportedModels:
    """Mixin of translation tasks; name it before the task among the base classes."""

    @classmethod
    def load_dictionary(cls, filename: str) -> Dictionary:
        """Load a dictionary: an imported model's if the file is of one, else fairseq's."""
        return ImportedDictionary.read(filename) or super().load_dictionary(filename)  # type: ignore[misc]

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, **kwargs: Any) -> Any:
        """Build the search; translations begin with the token of the target language where the model wants it."""
        forced = None
        if isinstance(self.target_dictionary, ImportedDictionary):  # type: ignore[attr-defined]
            forced = self.target_dictionary.forced(self.cfg.target_lang)  # type: ignore[attr-defined]
        wanted = not getattr(args, "score_reference", False) and not getattr(args, "print_alignment", False)
        if forced is not None and seq_gen_cls is None and wanted:
            seq_gen_cls, extra_gen_cls_kwargs = ForcingGenerator, {**(extra_gen_cls_kwargs or {}), "forced": forced}
        return super().build_generator(models, args, seq_gen_cls, extra_gen_cls_kwargs, **kwargs)  # type: ignore[misc]
