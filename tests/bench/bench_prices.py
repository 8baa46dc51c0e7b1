"""Speed and memory of reading a downloaded offer file of 50 MB."""

from __future__ import annotations

import datetime
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figure import show
from trnbench.facts.prices.feed.files import read_price_file

SIZE = 50_000_000
MB = 1e6


def offer_pieces(size: int) -> Iterator[str]:
    """Yield an offer file of about so many bytes: products first, then their terms."""
    attributes = {f"attribute{i}": "some text of the usual length" for i in range(25)}
    attributes |= {"regionCode": "us-east-2", "operatingSystem": "Linux"}
    dimension = {"unit": "Hrs", "description": "per hour", "pricePerUnit": {"USD": "1.34375"}}
    term = {
        "effectiveDate": "2026-11-01T00:00:00Z",
        "termAttributes": {},
        "priceDimensions": {"R": dimension},
    }
    offers = json.dumps({f"T{i}": term for i in range(13)})
    many = size // (len(json.dumps(attributes)) + len(offers))
    yield '{"offerCode":"AmazonEC2","publicationDate":"2026-11-20T00:00:00Z","products":{'
    for number in range(many):
        name = "trn1.2xlarge" if number == 7 else "m5.large"
        one = {"sku": f"S{number}", "attributes": {**attributes, "instanceType": name}}
        yield f'{"," if number else ""}"S{number}":{json.dumps(one)}'
    yield '},"terms":{"OnDemand":{'
    for number in range(many):
        yield f'{"," if number else ""}"S{number}":{offers}'
    yield "}}}"


def main() -> None:
    """Print each figure beside its bar."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "offers.json"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(offer_pieces(SIZE))
        start = time.process_time()
        found = read_price_file(path, {"trn1.2xlarge": "trn1.2xlarge"}, datetime.date(2026, 11, 22))
        show("offer file of 50 MB, CPU", time.process_time() - start, "s", 3, "at most")
        assert len(found.rates) == 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    show("its memory, the whole process", peak, "MB", 500, "at most")


if __name__ == "__main__":
    main()
