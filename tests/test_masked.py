"""What is said of references before translations are scored."""

import pytest

from fairseq_headprune.evaluation.translate import warn_of_pieces

PIECES = ["▁a ▁bo y ▁run s", "▁two ▁men"]
TEXT = ["A boy runs.", "Two men, it's said."]


# Source: sacrebleu's 13a expects detokenised text; tokenised BLEU ("tok") expects tokens.
@pytest.mark.parametrize(
    ("references", "tokenize", "warned"), [(PIECES, "13a", True), (TEXT, "13a", False), (PIECES, "tok", False)]
)
def test_text_in_pieces_is_pointed_out(references, tokenize, warned, caplog):
    warn_of_pieces(references, tokenize)
    assert ("--remove-bpe" in caplog.text) == warned
