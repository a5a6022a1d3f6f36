"""Notes below a comparison: what single scores do not show. Expected lines are counted by hand."""

from fairseq_headprune.studies.pruners.results import blindness_told, concerns_told


def test_what_an_order_hides_is_told_from_which_number_of_heads_on():
    rows = [{"method": "michel", "count": count, "concerns": of} for count, of in [(8, ["a"]), (4, ["a", "b"])]]
    rows.append({"method": "random-after", "count": 8})
    told = ["Michel et al., 8 heads and fewer: a", "Michel et al., 4 heads and fewer: b"]
    assert concerns_told(rows) == told


def test_models_that_do_not_see_the_source_are_counted():
    # By hand: of two models with 4 heads one has no encoder-decoder head, of one with 8 none lacks them.
    seeing, blind = {"enc_dec": ["0100", "0000"]}, {"enc_self": ["1111", "0000"], "enc_dec": ["0000", "0000"]}
    rows = [
        {"method": "joint-dsp", "count": count, "kept": kept} for count, kept in [(8, seeing), (4, blind), (4, seeing)]
    ]
    rows += [{"method": "unpruned", "count": None, "kept": seeing}, {"method": "ste", "count": 4, "kept": seeing}]
    assert blindness_told(rows) == [
        "Joint DSP: models without a head of encoder-decoder attention: 1 of 2 with 4 heads"
    ]
