"""mBART (cc25 and its descendants) and mBART-50: BART with pre-layer norm, and language tokens.

Config keys as ``facebook/mbart-large-en-ro`` and ``facebook/mbart-large-50-many-to-many-mmt`` have them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_headprune.imports.family import Family, shared_vocabulary
from fairseq_headprune.imports.folder import optional_json
from fairseq_headprune.imports.vocabulary import (
    LANGUAGE,
    Vocabulary,
    check_specials,
    fairseq_order,
    framed,
    tokenizer_or_sentencepiece,
)

_MODEL = "sentencepiece.bpe.model"

_CC25 = "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP "
_CC25 += "nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"

#: in the order of their ids
_FIFTY = f"{_CC25} af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX "
_FIFTY += "sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"


def _vocabulary(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    check_specials(config, start=None)
    fifty = _is_fifty(folder, config)
    known = (_FIFTY if fifty else _CC25).split()
    further = [*known, "<mask>"]
    numbers, pieces = tokenizer_or_sentencepiece(folder, _MODEL, lambda: fairseq_order(folder, _MODEL, further))
    languages = [token for token in numbers if re.fullmatch(r"[a-z]{2,3}_[A-Z]{2}", token) and token in known]
    frames = {"source": framed([LANGUAGE], ["</s>"]), "target": framed([LANGUAGE], ["</s>"])}
    if not fifty:
        # The decoder starts with the language instead; transformers' labels have it again after the end of sentence.
        frames = {"source": framed([], ["</s>", LANGUAGE]), "target": framed([], ["</s>"])}
    start, forced = (None, LANGUAGE) if fifty else (LANGUAGE, None)
    return shared_vocabulary(
        folder, config, numbers, pieces, frames, forced, start=start, language="{}", languages=languages
    )


def _is_fifty(folder: Path, config: Mapping[str, Any]) -> bool:
    name = optional_json(folder, "tokenizer_config.json").get("tokenizer_class") or config.get("tokenizer_class")
    if name:
        return "50" in name
    return config.get("decoder_start_token_id") == config.get("eos_token_id", 2)


FAMILY = Family(
    arch="mbart_gated",
    vocabulary=_vocabulary,
    refused={"normalize_before": True, "normalize_embedding": True, "static_position_embeddings": False},
    embedding_norm=True,
    final_norm=True,
    learned_positions=True,
)
