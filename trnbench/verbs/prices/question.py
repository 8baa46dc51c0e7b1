"""Question of `prices`: the rates of an instance type, or rates read anew."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from trnbench.facts import parsing
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog


class PriceHistoryQuestion(Question):
    """The rates of an instance type by day, and the claims that turned on them."""

    instance: str = option(
        "", metavar="INSTANCE", argument=True, required=True, completes=("instances",)
    )
    since: datetime.date | None = option("Only what was read from then on.", read=parsing.date)

    def settled(self, catalog: Catalog) -> PriceHistoryQuestion:
        return self.but(instance=catalog.find("instances", self.instance).name)


class RefreshQuestion(Question):
    """Rates of `source`; `regions` and `instances` are those that AWS is asked for.

    `made` is the day of a file that does not say it.
    """

    source: str | None = option(
        "aws asks Amazon, by boto3 and its credentials. FILE: an AWS offer file, "
        "ec2instances.info's JSON, SkyPilot's vms.csv, or a CSV with "
        "instance,region,purchase,usd_per_hour,date_from,source.",
        metavar="aws|FILE",
    )
    dry_run: bool = option("Say what would change, and write nothing.")
    policy: bool = option("Print what the AWS account has to allow, and end.")
    regions: tuple[str, ...] = option(
        "Regions to ask for; default: the usual ones.", name="region", metavar="NAME,..."
    )
    instances: tuple[str, ...] = option(
        "Instance types to ask for; default: all of AWS.",
        name="on",
        metavar="INSTANCE,...",
        completes=("instances",),
    )
    made: datetime.date | None = option(
        "When a file was made that does not say; default: the file's own date.",
        name="date",
        read=parsing.date,
    )

    def inputs(self) -> dict[str, object]:
        return {"source": self.source, "dry_run": self.dry_run}
