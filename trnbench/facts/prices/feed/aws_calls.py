"""Queries to Amazon's price services for rates, offers and limits, only on request.

boto3's own chain supplies the credentials. Answers may be paged, throttled or refused: a refusal by
one service is reported, and the answers of the others are kept.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from trnbench.errors import EnvironmentFault
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.prices.feed import aws_answers
from trnbench.facts.prices.feed.offer_file import WANTED, read_products
from trnbench.facts.prices.feed.reading import Known, RatesRead
from trnbench.facts.prices.purchase import Quota
from trnbench.facts.records import Record, State, field

HOME = "us-east-1"
"""Region for services without a region of their own."""
SPOT_DAYS = 30
BLOCK_HOURS = (24, 336)
"""Lengths, hours, for which Capacity Blocks are requested."""
HOURS_OF_DAY = 24
TRIES, FIRST_PAUSE_S = 6, 1.0
MOST_PAGES = 10_000
_SLOWED = re.compile(r"throttl|toomanyrequests|requestlimit|slowdown", re.IGNORECASE)
_UNSOLD = re.compile(r"Invalid(InstanceType|ParameterValue)|ValidationException")
_PRIVATE = re.compile(r"arn:[^\s,;'\"]+|(?<!\d)\d{12}(?!\d)")
POLICY_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "pricing": ("pricing:GetProducts",),
    "ec2": (
        "ec2:DescribeSpotPriceHistory",
        "ec2:DescribeCapacityBlockOfferings",
        "ec2:DescribeCapacityReservations",
    ),
    "sagemaker": ("sagemaker:SearchTrainingPlanOfferings",),
    "savingsplans": ("savingsplans:DescribeSavingsPlansOfferingRates",),
    "service-quotas": ("servicequotas:GetServiceQuota",),
}
"""Required permissions by service; none changes or buys anything."""

Connect = Callable[[str, str], Any]
"""Factory of a client for (service, region)."""


class AccountLimit(Record):
    """A quota of the account in a region, in virtual processors."""

    region: str
    name: str
    code: str
    vcpus: float


class HeldCapacity(Record):
    """Machines reserved by the account, without ids."""

    instance: str
    region: str
    nodes: int
    free: int
    starts_at: str | None
    ends_at: str | None


class AwsReading(State):
    """Answers of the services: rates by source, offers, limits, and failures."""

    readings: list[RatesRead] = field(default_factory=list)
    offers: list[aws_answers.CapacityOffer] = field(default_factory=list)
    limits: list[AccountLimit] = field(default_factory=list)
    held: list[HeldCapacity] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class AwsQuestion(Record):
    """A request: instance types in regions, and quotas; `known` maps the seller's names."""

    instances: Sequence[Instance]
    regions: Sequence[str]
    quotas: Sequence[Quota]
    known: Known
    now: datetime.datetime


def policy() -> str:
    actions = sorted(action for of in POLICY_ACTIONS.values() for action in of)
    statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, indent=2)


def connect() -> Connect:
    """Client factory of boto3, which has to be installed."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise EnvironmentFault(
            "asking AWS needs boto3, which is not installed", hint="pip install 'trnbench[aws]'"
        ) from None
    # Only one attempt by boto3: a slowed-down call is repeated here, where tests see it.
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=60)
    session = boto3.Session()
    return lambda service, region: session.client(service, region_name=region, config=config)


def read_aws(
    question: AwsQuestion, to: Connect, pause: Callable[[float], None] = time.sleep
) -> AwsReading:
    """Answers of all services; refusals are listed among the failures."""
    asking = _Asking(question=question, to=to, pause=pause, found=AwsReading())
    steps: list[tuple[str, Callable[[], None]]] = [
        ("Price List", asking.products),
        ("Savings Plans", asking.savings),
    ]
    for region in question.regions:
        asked: Mapping[str, Callable[[str], None]] = {
            "spot price history": asking.spot,
            "Capacity Blocks": asking.blocks,
            "SageMaker training plans": asking.plans,
            "quotas": asking.limits,
            "capacity reservations": asking.held,
        }
        steps += [(f"{name} in {region}", partial(ask, region)) for name, ask in asked.items()]
    for name, step in steps:
        asking.attempt(name, step)
    return asking.found


def blocks_on_offer(
    question: AwsQuestion,
    to: Connect,
    *,
    machines: int,
    days: int,
    pause: Callable[[float], None] = time.sleep,
) -> AwsReading:
    """Capacity Blocks of so many machines and days that are on offer in each region."""
    asking = _Asking(question=question, to=to, pause=pause, found=AwsReading())
    for region in question.regions:
        step = partial(asking.sized, region, machines, HOURS_OF_DAY * days)
        asking.attempt(f"Capacity Blocks in {region}", step)
    return asking.found


class _Asking(Record):
    question: AwsQuestion
    to: Connect
    pause: Callable[[float], None]
    found: AwsReading

    def attempt(self, name: str, step: Callable[[], None]) -> None:
        """Run one query; record a failure without account numbers and resource names."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            step()
        except (ClientError, BotoCoreError) as error:
            self.found.failures.append(f"{name}: {_PRIVATE.sub('(hidden)', str(error))}")

    def products(self) -> None:
        """Query the Price List for on-demand rates and reserved instances."""
        wanted = [("productFamily", "Compute Instance"), *WANTED.items()]
        texts: list[dict[str, Any]] = []
        for region in self.question.regions:
            for instance in self._sold_by_hour():
                filters = [*wanted, ("regionCode", region), ("instanceType", instance)]
                asked = {
                    "ServiceCode": "AmazonEC2",
                    "Filters": [
                        {"Type": "TERM_MATCH", "Field": key, "Value": value}
                        for key, value in filters
                    ],
                }
                answers = self._pages("pricing", HOME, "get_products", asked, "PriceList")
                texts += [json.loads(text) for text in answers]
        day = self.question.now.date()
        self.found.readings.append(read_products(texts, self.question.known, day))

    def savings(self) -> None:
        """Query the rates of savings plans."""
        if not self._sold_by_hour():
            return
        asked = {
            "products": ["EC2"],
            "serviceCodes": ["AmazonEC2"],
            "filters": [
                {"name": "region", "values": list(self.question.regions)},
                {"name": "instanceType", "values": list(self._sold_by_hour())},
                {"name": "productDescription", "values": ["Linux/UNIX"]},
                {"name": "tenancy", "values": ["shared"]},
            ],
        }
        answers = self._pages(
            "savingsplans", HOME, "describe_savings_plans_offering_rates", asked, "searchResults"
        )
        day = self.question.now.date()
        self.found.readings.append(aws_answers.savings_reading(answers, self.question.known, day))

    def spot(self, region: str) -> None:
        """Query the spot rates of the last days."""
        if not self._sold_by_hour():
            return
        asked = {
            # A filter, unlike `InstanceTypes`, may name machines that the service does not know.
            "Filters": [{"Name": "instance-type", "Values": list(self._sold_by_hour())}],
            "ProductDescriptions": ["Linux/UNIX"],
            "StartTime": self.question.now - datetime.timedelta(days=SPOT_DAYS),
            "EndTime": self.question.now,
        }
        answers = self._pages(
            "ec2", region, "describe_spot_price_history", asked, "SpotPriceHistory"
        )
        self.found.readings.append(aws_answers.spot_reading(answers, self.question.known))

    def blocks(self, region: str) -> None:
        """Query the Capacity Blocks and UltraServers on offer."""
        items: list[dict[str, Any]] = []
        for instance in self.question.instances:
            if "capacity-block" not in instance.purchase and instance.hosts == 1:
                continue
            for hours in BLOCK_HOURS:
                items += self._offered(region, instance, 1, hours)
        self._take(items)

    def sized(self, region: str, machines: int, hours: int) -> None:
        """Query blocks of so many machines for so many hours."""
        for instance in self.question.instances:
            self._take(self._offered(region, instance, machines, hours))

    def _offered(
        self, region: str, instance: Instance, machines: int, hours: int
    ) -> list[dict[str, Any]]:
        key = "Ultraserver" if instance.hosts > 1 else "Instance"
        asked = {
            f"{key}Type": seller_name(instance),
            f"{key}Count": machines,
            "CapacityDurationHours": hours,
            "AllAvailabilityZones": True,
        }
        operation = "describe_capacity_block_offerings"
        return self._of_sold(self._pages("ec2", region, operation, asked, "CapacityBlockOfferings"))

    def _take(self, items: list[dict[str, Any]]) -> None:
        offers, warnings = aws_answers.block_offers(items, self.question.known)
        self.found.offers += offers
        day = self.question.now.date()
        self.found.readings.append(aws_answers.block_reading(offers, day, warnings))

    def plans(self, region: str) -> None:
        """Query the SageMaker training plans on offer."""
        items: list[dict[str, Any]] = []
        for instance in self.question.instances:
            if "capacity-block" in instance.purchase and instance.hosts == 1:
                asked = {
                    "InstanceType": f"ml.{instance.name}",
                    "InstanceCount": 1,
                    "DurationHours": BLOCK_HOURS[0],
                    "TargetResources": ["training-job"],
                }
                operation = "search_training_plan_offerings"
                items += self._of_sold(
                    self._pages("sagemaker", region, operation, asked, "TrainingPlanOfferings")
                )
        offers, warnings = aws_answers.plan_offers(items, self.question.known)
        self.found.offers += offers
        self.found.failures += warnings

    def limits(self, region: str) -> None:
        """Query the account's quotas of virtual processors."""
        client = self.to("service-quotas", region)
        for quota in self.question.quotas:
            asked = {"ServiceCode": "ec2", "QuotaCode": quota.code}
            answer = self._call(client, "get_service_quota", asked).get("Quota") or {}
            if answer.get("Value") is not None:
                vcpus = float(answer["Value"])
                limit = AccountLimit(region=region, name=quota.name, code=quota.code, vcpus=vcpus)
                self.found.limits.append(limit)

    def held(self, region: str) -> None:
        """Query the account's capacity reservations."""
        asked = {"Filters": [{"Name": "state", "Values": ["active", "scheduled", "pending"]}]}
        operation = "describe_capacity_reservations"
        for reservation in self._pages("ec2", region, operation, asked, "CapacityReservations"):
            name = self.question.known(str(reservation.get("InstanceType")))
            if name is not None:
                self.found.held.append(
                    HeldCapacity(
                        instance=name,
                        region=region,
                        nodes=int(reservation.get("TotalInstanceCount") or 0),
                        free=int(reservation.get("AvailableInstanceCount") or 0),
                        starts_at=_day_text(reservation.get("StartDate")),
                        ends_at=_day_text(reservation.get("EndDate")),
                    )
                )

    def _of_sold(self, answers: Iterator[Any]) -> list[Any]:
        """The answers; empty where the service does not sell the machine."""
        from botocore.exceptions import ClientError

        try:
            return list(answers)
        except ClientError as error:
            if not _UNSOLD.match(str(error.response.get("Error", {}).get("Code"))):
                raise
            return []

    def _sold_by_hour(self) -> tuple[str, ...]:
        return tuple(instance.name for instance in self.question.instances if instance.hosts == 1)

    def _pages(
        self, service: str, region: str, operation: str, asked: Mapping[str, Any], key: str
    ) -> Iterator[Any]:
        """Yield the answers of every page; an empty page need not be the last."""
        client = self.to(service, region)
        name = "nextToken" if service == "savingsplans" else "NextToken"
        token, seen = "", set[str]()
        for _ in range(MOST_PAGES):
            more = {name: token} if token else {}
            answer = self._call(client, operation, {**asked, **more})
            yield from answer.get(key) or []
            token = answer.get(name) or ""
            # A repeated token would page for ever.
            if not token or token in seen:
                return
            seen.add(token)

    def _call(self, client: Any, operation: str, asked: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401
        """One answer; throttled calls are retried after exponentially growing pauses."""
        from botocore.exceptions import ClientError

        for attempt in range(TRIES):
            try:
                answer: dict[str, Any] = getattr(client, operation)(**asked)
                return answer
            except ClientError as error:
                code = str(error.response.get("Error", {}).get("Code"))
                if attempt == TRIES - 1 or not _SLOWED.search(code):
                    raise
                self.pause(FIRST_PAUSE_S * 2**attempt)
        raise AssertionError("the last try returns or raises")


def seller_name(instance: Instance) -> str:
    """The seller's name of an instance type; UltraServers have a name that begins with u-."""
    names = (instance.name, *instance.aliases)
    if instance.hosts > 1:
        return next((name for name in names if name.startswith("u-")), instance.name)
    return instance.name


def _day_text(value: object) -> str | None:
    return value.date().isoformat() if isinstance(value, datetime.datetime) else None
