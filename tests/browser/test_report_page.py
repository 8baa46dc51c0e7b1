"""The report as a reader opens it: offline, light and dark, printed, and without a fault."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.browser.chromium import page
from trnbench.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]

PLAN = (
    *("plan", "llama2-7b", "--tokens", "300B", "--on", "trn1.32xlarge,p5.48xlarge"),
    *("--max-nodes", "16", "--tp", "8", "--price-date", "2026-11-21", "-q", "-o"),
)
CHECK = """
(() => {
  const seen = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const bent = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const part = (v) => bent(v / 255);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const paper = light(seen(getComputedStyle(document.body).backgroundColor));
  const faults = [];
  for (const one of document.querySelectorAll('p,li,td,th,h1,h2,figcaption,svg text:not(.on)')) {
    const style = getComputedStyle(one);
    const ink = light(seen(one.closest('svg') ? style.fill : style.color));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < 4.5)
      faults.push(`contrast ${contrast.toFixed(2)}: ${one.textContent.slice(0, 40)}`);
  }
  for (const one of document.querySelectorAll('svg rect, svg circle')) {
    const ink = light(seen(getComputedStyle(one).fill));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < 3) faults.push(`mark contrast ${contrast.toFixed(2)}`);
  }
  for (const one of document.querySelectorAll('svg'))
    if (!one.getAttribute('aria-label')) faults.push('a chart has no label');
  for (const one of document.querySelectorAll('table'))
    if (one.querySelectorAll('th[scope=col]').length === 0) faults.push('a table has no headings');
  if (!document.documentElement.lang) faults.push('no language');
  if (document.documentElement.scrollWidth > innerWidth) faults.push('the page scrolls sideways');
  for (const one of document.querySelectorAll('svg text')) {
    const box = one.getBoundingClientRect(), around = one.closest('svg').getBoundingClientRect();
    if (box.right > around.right + 1 || box.left < around.left - 1)
      faults.push(`cut off: ${one.textContent}`);
  }
  return faults;
})()
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    path = folder / "plan.html"
    assert main([*PLAN, str(folder / "plan.txt"), "--report", str(path)]) == 0
    return path


def test_a_report_reads_well_at_two_widths_in_light_and_dark(report, tmp_path):
    async def look():
        async with page(tmp_path) as tab:
            faults = {}
            for scheme in ("light", "dark"):
                for width in (480, 1200):
                    await tab.show(width, 900, scheme)
                    await tab.open(report.as_uri())
                    await tab.picture(tmp_path / f"{scheme}-{width}.png")
                    faults[scheme, width] = await tab.value(CHECK)
            papers = await tab.value("getComputedStyle(document.body).backgroundColor")
            text = await tab.value(
                "getSelection().selectAllChildren(document.body), ''+getSelection()"
            )
            return faults, papers, text, tab.told

    faults, paper, text, told = asyncio.run(look())
    assert not any(faults.values()), faults
    assert paper == "rgb(22, 22, 22)"
    assert "trn1.32xlarge" in text
    assert told == []


def test_a_report_prints_on_two_pages(report, tmp_path):
    async def printed():
        async with page(tmp_path) as tab:
            await tab.open(report.as_uri())
            return await tab.pdf()

    pages = re.findall(rb"/Type\s*/Page\b", asyncio.run(printed()))
    assert 1 <= len(pages) <= 2


DIFFED = (
    *("compare", "llama2-7b", "--tokens", "300B", "--on", "trn1.32xlarge,p5.48xlarge"),
    *("--nodes", "4", "--tp", "8", "--pp", "1", "--price-date", "2026-11-21", "-q"),
)


def reports_of_every_kind(folder):
    """Write a report of each other verb that makes one; yield their files."""
    out = ("-q", "-o", str(folder / "out.txt"))
    first, second = (str(folder / f"{name}.json") for name in ("first", "second"))
    assert main([*DIFFED, "-o", first]) == 0
    assert main([*DIFFED, "--discount", "20%", "-o", second]) == 0
    for name, asked in {
        "compare": DIFFED[:-1],
        "fleet": ("fleet", "two-jobs"),
        "validate": ("validate", "--set", "trainium"),
        "diff": ("runs", "diff", first, second),
    }.items():
        path = folder / f"{name}.html"
        assert main([*asked, *out, "--report", str(path)]) == 0
        yield path


def test_every_kind_of_report_reads_well_and_prints_on_two_pages(tmp_path):
    async def look():
        faults, pages = {}, {}
        async with page(tmp_path) as tab:
            for path in reports_of_every_kind(tmp_path):
                for scheme, width in (("light", 1200), ("dark", 480)):
                    await tab.show(width, 900, scheme)
                    await tab.open(path.as_uri())
                    faults[path.stem, scheme] = await tab.value(CHECK)
                pages[path.stem] = len(re.findall(rb"/Type\s*/Page\b", await tab.pdf()))
                assert path.stat().st_size < 1_000_000
            return faults, pages, tab.told

    faults, pages, told = asyncio.run(look())
    assert not any(faults.values()), faults
    # The table of a validation has a row for each measured step.
    most = {name: 3 if name == "validate" else 2 for name in pages}
    assert all(1 <= count <= most[name] for name, count in pages.items()), pages
    assert told == []


def test_a_check_of_contrast_can_fail(report, tmp_path):
    faint = tmp_path / "faint.html"
    faint.write_text(report.read_text().replace("--ink: #1b1b1b", "--ink: #aaaaaa"))

    async def look():
        async with page(tmp_path) as tab:
            await tab.open(faint.as_uri())
            return await tab.value(CHECK)

    assert any("contrast" in fault for fault in asyncio.run(look()))
