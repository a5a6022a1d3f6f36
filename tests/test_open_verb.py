"""``headprune open``: what the server answers, against what ``headprune report`` writes of the same studies."""

import threading
import urllib.request
import webbrowser
from http.server import ThreadingHTTPServer
from urllib.error import HTTPError

import pytest
from reports import hand_pruning
from verbs import refused

from fairseq_headprune.cli import main
from fairseq_headprune.cli.open import version
from fairseq_headprune.cli.report import document
from fairseq_headprune.report.page.document import render
from fairseq_headprune.report.page.server import PageServer


@pytest.fixture
def served(tmp_path):
    """A study of which a cell is missing, and the server of its page."""
    study = hand_pruning(tmp_path / "study", done=1)
    with PageServer(lambda: version([study]), lambda: render(document([study], "study"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield study, server
        server.shutdown()


def get(server, path, **headers):
    with urllib.request.urlopen(urllib.request.Request(server.url + path, headers=headers)) as answer:
        return answer.read().decode()


def test_the_page_is_that_of_the_report_and_follows_the_study(served):
    study, server = served
    assert get(server, "page") == render(document([study], "study"))
    first, page = get(server, "version"), server.page()
    assert get(server, "version") == first and server.page() is page  # made once
    lines = (study / "cells.jsonl").read_text()
    full = hand_pruning(study.with_name("full"))
    (study / "cells.jsonl").write_text((full / "cells.jsonl").read_text())
    assert lines in (study / "cells.jsonl").read_text() and get(server, "version") != first
    assert get(server, "page") == render(document([study], "study")) != page
    assert 'src="page"' in get(server, "")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("study.json", {}, 404), ("../study/study.json", {}, 404), ("page", {"Host": "example.org"}, 403)],
)
def test_nothing_else_is_served_and_to_no_other_name(served, path, headers, status):
    with pytest.raises(HTTPError) as told:
        get(served[1], path, **headers)
    assert told.value.code == status


def test_a_study_that_breaks_meanwhile_is_said_in_the_page(served):
    study, server = served
    (study / "study.json").write_text("{}")
    with pytest.raises(HTTPError) as told:
        get(server, "page")
    assert told.value.code == 500 and "study.json" in told.value.read().decode()


@pytest.mark.parametrize("flags", [[], ["--no-browser"]])
def test_the_verb_opens_a_browser_until_it_is_interrupted(tmp_path, capsys, monkeypatch, flags):
    def stop(self):
        raise KeyboardInterrupt

    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", stop)
    assert main(["open", str(hand_pruning(tmp_path / "study")), *flags]) == 0
    url = capsys.readouterr().out.split()[0]
    assert url.startswith("http://127.0.0.1:") and opened == ([] if flags else [url])
    assert "holds no study.json" in refused(capsys, "open", tmp_path)
