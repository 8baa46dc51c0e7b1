"""Reports and charts are files beside an answer: whole, escaped, small, and without a secret."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from trnbench.show.page import html_page, markdown_page
from trnbench.show.redaction import without_money, without_own_options
from trnbench.show.report import Report, columns

COMPARE = (
    *("compare", "llama2-7b", "--tokens", "300B", "--on", "trn1.32xlarge,p5.48xlarge"),
    *("--nodes", "4", "--tp", "8", "--pp", "1", "--price-date", "2026-11-21"),
)
HOSTILE = '</style><script>alert("1")</script>\x1b[2J\u202e'


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.every: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.every.add(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action")]
        if tag not in ("meta", "link", "br", "line", "circle", "rect", "path", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.every.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_what_data_files_say_is_escaped_everywhere():
    report = Report(
        verb="compare",
        inputs={"model": HOSTILE},
        rows=(
            {"instance": HOSTILE, "days": 3.0, "cost_usd": 5.0, "notes": [HOSTILE]},
            {"instance": "b", "days": 4.0, "cost_usd": 6.0, "exposed_<b>_s": 1.0},
        ),
        columns=columns("instance", "days", "cost_usd"),
        summary={"verdict": HOSTILE},
        notes=(HOSTILE,),
    )
    text = html_page(report, f"trnbench {HOSTILE}").decode()
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.links == []
    assert "script" not in tags.every
    assert not re.search("[\x1b\u202e]", text)
    assert text.count("&lt;script&gt;") >= 5
    assert not re.search("[\x1b\u202e]", markdown_page(report, HOSTILE).decode())


@pytest.mark.slow
def test_a_report_changes_neither_output_nor_exit_code(run, tmp_path):
    plain = run(*COMPARE)
    page, chart = tmp_path / "out.html", tmp_path / "out.svg"
    assert run(*COMPARE, "--report", page, "--plot-file", chart) == plain
    text = page.read_text()
    assert len(text) < 1_000_000
    for part in ("of being cheapest: ", "80 % intervals", "step time by part", "memory per rank"):
        assert part in text
    for part in ("Prices", "Evidence", "training-nxd-trn1", "trnbench compare llama2-7b"):
        assert part in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert chart.read_text().startswith("<svg xmlns=")
    twice = tmp_path / "again.html"
    run(*COMPARE, "--report", twice, "--plot-file", chart)
    assert twice.read_text().replace("again.html", "out.html") == text


@pytest.mark.parametrize(
    "arguments",
    [
        ("matrix", "512x512x512", "1024x1024x1024", "--on", "trainium1"),
        ("collective", "all-reduce", "--on", "trn1.32xlarge", "--min-size", "1KiB"),
        ("train", "llama2-7b", "--on", "trn1.32xlarge:4", "--tp", "8"),
    ],
)
def test_every_plotting_verb_writes_its_chart(run, tmp_path, arguments):
    chart = tmp_path / "out.svg"
    assert run(*arguments, "--plot-file", chart).code == 0
    tags = Tags()
    tags.feed(chart.read_text())
    assert tags.open == []
    assert {"svg", "title", "text"} <= tags.every


@pytest.mark.slow
def test_redacted_reports_tell_no_price(run, tmp_path):
    asked = (*COMPARE, "--price", "p5.48xlarge=33.25", "--discount", "17%")
    path = tmp_path / "out.md"
    told = run(*asked, "--report", path)
    assert "prices or discounts of your own are inside" in told.err
    assert "33.25" in path.read_text()
    costs = re.findall(r"USD ([\d.]+K)", told.out)
    assert run(*asked, "--report", path, "--redact-prices").err == ""
    text = path.read_text()
    assert costs
    for secret in ("33.25", "17%", "0.17", *costs):
        assert secret not in text
    assert "--price redacted" in text
    assert "tokens/s" in text


def test_amounts_are_found_in_sentences():
    told = "cheapest: 4 x trn1.32xlarge, USD 24K: 27 % below p5, >99 % of draws"
    assert without_money(told) == (
        "cheapest: 4 x trn1.32xlarge, USD redacted: redacted % below p5, redacted % of draws"
    )
    assert without_money("USD 29.3K (27.5-38.4) as blocks") == "USD redacted as blocks"
    assert without_money("as one block: 22,419 USD") == "as one block: USD redacted"
    assert without_money("$5.97 an hour") == "USD redacted an hour"
    assert without_money("MFU 40 %") == "MFU 40 %"
    line = "trnbench plan x --price 'a=3 4' --discount=18% --budget 5M --on a"
    assert without_own_options(line) == (
        "trnbench plan x --price redacted --discount=redacted --budget redacted --on a"
    )


def test_files_that_cannot_be_are_refused_before_any_work(run, tmp_path):
    assert "must end in .html or .md" in run(*COMPARE, "--report", "x.pdf").err
    assert "must end in .svg" in run(*COMPARE, "--plot-file", "x.png").err
    assert "give --report" in run(*COMPARE, "--redact-prices").err
    assert run(*COMPARE, "--report", tmp_path / "none" / "x.html").code == 3
    same = tmp_path / "x.md"
    assert "name one file" in run(*COMPARE, "--report", same, "-o", same).err


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.json", "{"), ("a.CSV", "shape,"), ("a.md", "| m x k x n"), ("a", "m x")],
)
def test_the_ending_of_a_file_chooses_its_format_unless_one_is_said(run, tmp_path, name, begins):
    asked = ("matrix", "512x512x512", "--on", "trainium1", "-q", "-o", tmp_path / name)
    assert run(*asked).code == 0
    assert (tmp_path / name).read_text().startswith(begins)
    assert run(*asked, "--format", "jsonl").code == 0
    assert (tmp_path / name).read_text().startswith('{"shape"')


@pytest.mark.slow
def test_a_report_of_a_choice_stands_in_the_order_of_a_decision(run, tmp_path):
    page = tmp_path / "choice.md"
    asked = ("llama3.1-70b", "--tokens", "2T", "--on", "trn2.48xlarge,p5.48xlarge", "--nodes", 64)
    done = run("compare", *asked, "--report", page, "--json")
    text = page.read_text()
    assert text.startswith(
        "# Which machines should train llama3.1-70b on 2T tokens, each on 64 nodes? Prices of "
    )
    verdict, advice = (done.json["summary"][key] for key in ("verdict", "advice"))
    parts = [verdict, "## Options", "## Next step", advice, "## Appendix: layouts and rates"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    (best,) = [line for line in text.splitlines() if line.startswith(("| * |", "| \\* |"))]
    assert done.json["summary"]["recommended"] in best
    head = text[places[1] : places[2]]
    assert all(column in head for column in ("cheapest (%)", "days", "price date", "speed from"))
