"""The report page in a real browser: it draws itself, tells the numbers of its document, and loads nothing."""

import threading

import browser
import pytest
from reports import CURVE, DELTAS, HOSTILE, REFERENCES, SOURCES, hand_ablation, hand_pruning, hand_random

from fairseq_headprune.cli.open import version
from fairseq_headprune.cli.report import document
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.page.document import render
from fairseq_headprune.report.page.server import PageServer
from fairseq_headprune.report.pictures import Shares
from fairseq_headprune.studies.stored import store

pytestmark = pytest.mark.skipif(
    browser.program() is None, reason="there is no browser: apt-get install --no-install-recommends chromium"
)

PANEL = "#study-1 .panel"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.running(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """An ablation, two finished pruning studies and one that is not, a random study of a classifier."""
    folder = tmp_path_factory.mktemp("studies")
    studies = [
        hand_ablation(folder / "a"), hand_pruning(folder / "p"), hand_pruning(folder / "random", "random"),
        hand_pruning(folder / "half", "oracle", 1), hand_random(folder / "drawn", metric="accuracy"),
    ]  # fmt: skip
    return document(studies, "Heads <b>& tails</b>")


@pytest.fixture(scope="module")
def file(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(content), encoding="utf-8")
    return path


@pytest.fixture
def page(chromium, file):
    """The page, opened in a tab; afterwards nothing may have gone wrong, and nothing else been loaded."""
    tab = chromium.page()
    tab.size(1280, 900)
    tab.open(file)
    yield tab
    tab.value("new Promise((done) => setTimeout(done, 50))")
    assert tab.problems == [] and tab.requests == [file.as_uri()]
    assert tab.value("window.hacked") is None


def cells(content):
    """The head cells of the ablation, with the selector of each."""
    for part in content["studies"][0]["maps"][0]["components"]:
        for cell in (cell for row in part["layers"] for cell in row):
            where = f'[data-component="{part["component"]}"][data-layer="{cell["layer"]}"][data-head="{cell["head"]}"]'
            yield f"#study-1 .map button{where}", cell


def told(page, selector):
    """The description lists below an element as one dictionary."""
    return page.value(
        f"Object.fromEntries([...document.querySelectorAll('{selector} dt')].reverse()"
        ".map((dt) => [dt.innerText, dt.nextElementSibling.innerText]))"
    )


def test_the_page_draws_itself(page, content):
    # Source: by hand: five studies and the curves of three of them together; 5 heads; 3 tables and one more.
    assert page.value("document.title") == "Heads <b>& tails</b>" == page.text("h1")
    headings = page.value("[...document.querySelectorAll('h2')].map((h) => h.innerText)")
    names = [f"{study['name']}: {study['heading']}" for study in content["studies"]]
    assert headings == ["Studies together", *names]
    assert page.value("document.querySelectorAll('#study-1 .map button').length") == 5
    assert page.value("document.querySelectorAll('#together .point').length") == 3 + 3 + 2
    assert page.value("document.querySelectorAll('#study-2 .point').length") == 3
    shown = page.value("[...document.querySelectorAll('#study-1 .map button')].map((b) => b.innerText)")
    assert shown == [f"{delta:+.2f}" for delta in DELTAS]


def test_hovering_tells_the_values_of_the_document(page, content):
    # Source: the document; p by hand: 0 of 1,000 resamples is less than 2/1000, Holm's of five heads less than 5 times
    # that, and for the third smallest 3 times p.
    least, none = ("< 0.002", "< 0.01"), ("1.000", "1.000")
    expected = [least, ("0.500", "1.000"), ("0.004", "0.012"), none, least]
    for (selector, cell), p_values in zip(cells(content), expected, strict=True):
        page.hover(selector)
        text, numbers = page.text(PANEL), told(page, PANEL)
        assert text.startswith(f"Enc-Enc (enc_self), layer {cell['layer']}, head {cell['head']}\n")
        assert numbers["Difference"] == f"{cell['delta']:+.2f} BLEU" and numbers["Score"] == f"{cell['score']:.2f} BLEU"
        assert (numbers["p"], numbers["p (Holm)"]) == p_values
        for example in cell["examples"]:
            assert f"Sentence {example['sentence']}: chrF2 100.0 unpruned, {example['chrf'][1]:.1f} now" in text
    assert page.value(f"document.querySelectorAll('{PANEL} h5').length") == 2


def test_sentences_stay_text(page, content):
    # Source: the hand-made sentences, letter by letter.
    selector, cell = list(cells(content))[-1]
    page.hover(selector)
    shown = page.value(f"[...document.querySelectorAll('{PANEL} dd')].map((dd) => dd.textContent)")
    for example in cell["examples"]:
        place = example["sentence"] - 1
        for text in (SOURCES[place], REFERENCES[place], f"{REFERENCES[place]} <i>4</i>"):
            assert text in shown
    assert page.value(f"document.querySelectorAll('{PANEL} i, {PANEL} img, {PANEL} script, {PANEL} b').length") == 0
    marked = page.value(f"[...document.querySelectorAll('{PANEL} mark')].map((m) => m.textContent)")
    assert marked == ["<i>4</i>"] * 2
    assert HOSTILE[0] in page.text("#study-2 .facts")


def test_the_keyboard_reaches_every_head(page, content):
    order = [cell for _, cell in cells(content)]
    page.value("document.querySelector('#study-1 .map button').focus()")
    seen = [page.text(f"{PANEL} h4")]
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowLeft"):
        page.press(key)
        seen.append(page.text(f"{PANEL} h4"))
    # Source: by hand, in a layer of 3 heads and one of 2.
    path = [order[k] for k in (0, 1, 2, 1, 4, 3)]
    assert seen == [f"Enc-Enc (enc_self), layer {cell['layer']}, head {cell['head']}" for cell in path]
    assert page.value("document.querySelectorAll('#study-1 .map button[tabindex=\"0\"]').length") == 1


def test_a_point_of_a_curve_tells_its_values(page):
    # Source: the hand-made curve: 2 of 5 heads at 50%, two comparisons.
    tip = "#study-2 .tip"
    assert page.value(f"document.querySelector('{tip}').hidden")
    page.hover("#study-2 .point:nth-child(2) .hit")
    assert page.text(f"{tip} h4") == "All"
    expected = {"Pruned": "50% (2 heads)", "BLEU": f"{CURVE[1]:.2f}", "95% interval": "20.25 to 22.25"}
    assert told(page, tip) == {**expected, "p": "< 0.002", "p (Holm)": "< 0.004"}
    page.value("document.querySelector('#study-2 .point').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    assert told(page, tip)["BLEU"] == f"{CURVE[2]:.2f}"


def test_an_unfinished_study_says_so(page):
    assert "Missing: 2 of 3 steps are done" in page.text("#study-4")
    page.hover("#study-4 .point:nth-child(2) .hit")
    assert told(page, "#study-4 .tip")["p (Holm)"] == "not known before all cells are done"


def test_a_random_study_of_a_classifier_tells_its_own_measure(page):
    # Source: the hand-made study: three samplings of 60% with the mean 28 and a standard deviation of 1.
    text = page.text("#study-5")
    assert "Unpruned: 30.00 accuracy; finished." in text and "BLEU" not in text
    page.hover("#study-5 .point:nth-child(3) .hit")
    expected = {"Pruned": "60% (3 heads)", "accuracy, mean of 3": "28.00", "Standard deviation": "1.00"}
    assert told(page, "#study-5 .tip") == expected
    rows = page.value("[...document.querySelectorAll('#top tbody tr')].map((row) => row.cells[2].innerText)")
    assert rows[0] == "30.00 BLEU" and rows[4] == "30.00 accuracy"


def test_narrow_dark_and_printed(page, file):
    page.size(380, 800)
    page.open(file)
    assert page.value("document.documentElement.scrollWidth") <= 380
    # A cell of the overview, about 350 pixels wide, holds "Unpruned: 30.00 BLEU" in one line of 24 pixels at most.
    assert page.value("document.querySelector('.overview td:nth-child(3)').offsetHeight") <= 24
    light = page.value("getComputedStyle(document.body).backgroundColor")
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.value("getComputedStyle(document.body).backgroundColor") != light
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.value("getComputedStyle(document.body).backgroundColor") == light
    page.value("dispatchEvent(new Event('beforeprint'))")
    assert page.value("[...document.querySelectorAll('details')].every((node) => node.open)")
    page.requests[:] = page.requests[:1]


def test_what_the_tests_would_notice(chromium, file, tmp_path):
    # Negative control: a script that was put in and one that fails, an image from elsewhere.
    broken = tmp_path / "broken.html"
    image = "<img src='http://127.0.0.1:9/x.png'><script>window.hacked = 1</script></body>"
    broken.write_text(file.read_text(encoding="utf-8").replace("</body>", image), encoding="utf-8")
    tab = chromium.page()
    tab.open(broken)
    # The page's security policy stops both, and the browser reports it.
    assert tab.value("window.hacked") is None and len(tab.problems) == 2
    broken.write_text("<body><script>console.error('wrong'); nothing()</script><img src='x.png'></body>")
    tab.open(broken)
    tab.value("new Promise((done) => setTimeout(done, 50))")
    assert tab.requests[-1].endswith("x.png")
    assert any("wrong" in problem for problem in tab.problems) and any("nothing" in p for p in tab.problems)


def test_an_opened_study_is_shown_again_when_it_has_another_cell(chromium, tmp_path):
    study, full = hand_pruning(tmp_path / "study", done=1), hand_pruning(tmp_path / "full")
    with PageServer(lambda: version([study]), lambda: render(document([study], "study"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab = chromium.page()
        tab.size(1280, 300)
        tab.open(server.url)
        shown = "(document.querySelector('iframe').contentDocument?.body?.innerText ?? '')"
        tab.wait(f"{shown}.includes('2 of 3') && document.title == 'study'")
        tab.value("document.querySelector('iframe').contentWindow.scrollTo(0, 60)")
        tab.wait("shown !== null")
        (study / "cells.jsonl").write_bytes((full / "cells.jsonl").read_bytes())
        tab.wait(f"{shown}.includes('finished')")
        tab.wait("document.querySelector('iframe').contentWindow.scrollY == 60")
        assert tab.problems == [] and all(url.startswith((server.url, "data:")) for url in tab.requests)
        server.shutdown()


def test_pictures_of_stored_documents_are_shown(chromium, tmp_path):
    panel = Shares("bars", "Bars", ["one", "two"], {"all": [0.25, 0.75]})
    stored = Document("Shares", panels=[panel], state={"measure": "", "unpruned": None, "done": 1, "planned": 1})
    stored.provenance = {"settings": {"data": {"split": "dev"}, "checkpoint": "c" * 64}, "runs": []}
    store(stored, "lottery patterns", tmp_path / "shares")
    (tmp_path / "page.html").write_text(render(document([tmp_path / "shares"], "title")), encoding="utf-8")
    tab = chromium.page()
    tab.open(tmp_path / "page.html")
    loaded = "new Promise((done) => setTimeout(() => done(document.querySelector('.picture img').naturalWidth), 100))"
    assert tab.value(loaded) > 100 and tab.problems == []
    assert "bootstrap" not in tab.value("document.body.innerText")
