"""Amazon's services, as botocore describes them: pages, patience, refusals, and what is kept."""

from __future__ import annotations

import datetime
import json
from collections import Counter

import boto3
import pytest
from botocore.stub import ANY, Stubber

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.prices.feed.aws_calls import HOME, POLICY_ACTIONS, AwsQuestion, read_aws
from trnbench.facts.prices.feed.offer_file import WANTED
from trnbench.facts.prices.purchase import Quota
from trnbench.verbs.prices.run import refresh_prices

NOW = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
REGION = "us-east-2"
ARN = "arn:aws:iam::123456789012:user/somebody"


class Cloud:
    """Clients of which each operation has its answers laid ready; unasked ones have none."""

    def __init__(self):
        self.clients, self.stubs, self.pauses = {}, {}, []

    def __call__(self, service, region):
        key = service, region
        if key not in self.clients:
            keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
            self.clients[key] = boto3.client(service, region_name=region, **keys)
            self.stubs[key] = Stubber(self.clients[key])
            self.stubs[key].activate()
        return self.clients[key]

    def stub(self, service, region=REGION):
        self(service, region)
        return self.stubs[service, region]

    def says(self, service, operation, answer, expected=None, region=REGION):
        self.stub(service, region).add_response(operation, answer, expected)

    def refuses(self, service, operation, code, region=REGION):
        self.stub(service, region).add_client_error(operation, code, f"{code} for {ARN}")

    def ask(self, *names, quotas=()):
        catalog = open_catalog()
        known = {name: one[0].name for name, one in catalog.users("instances").items()}
        question = AwsQuestion(
            instances=[load_instance(catalog, name) for name in names],
            regions=(REGION,),
            quotas=quotas,
            known=known.get,
            now=NOW,
        )
        found = read_aws(question, self, pause=self.pauses.append)
        for stub in self.stubs.values():
            stub.assert_no_pending_responses()
        return found


@pytest.fixture
def cloud(monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return Cloud()


def product(sku, usd_per_hour, currency="USD"):
    dimension = {"unit": "Hrs", "pricePerUnit": {currency: str(usd_per_hour)}}
    term = {"effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": {"d": dimension}}
    attributes = {"instanceType": "trn1.32xlarge", "regionCode": REGION, **WANTED}
    return json.dumps(
        {
            "product": {"sku": sku, "attributes": attributes},
            "terms": {"OnDemand": {f"{sku}.1": term}},
            "publicationDate": "2026-11-20T00:00:00Z",
        }
    )


def quiet_but(cloud, *spoken):
    """Lay an empty answer ready for every step but those named."""
    empty: dict[str, tuple[str, str, dict, str]] = {
        "products": ("pricing", "get_products", {"PriceList": []}, HOME),
        "savings": ("savingsplans", "describe_savings_plans_offering_rates", {}, HOME),
        "spot": ("ec2", "describe_spot_price_history", {}, REGION),
        "blocks": ("ec2", "describe_capacity_block_offerings", {}, REGION),
        "blocks-14": ("ec2", "describe_capacity_block_offerings", {}, REGION),
        "plans": (
            "sagemaker",
            "search_training_plan_offerings",
            {"TrainingPlanOfferings": []},
            REGION,
        ),
        "held": ("ec2", "describe_capacity_reservations", {}, REGION),
    }
    for name, (service, operation, answer, region) in empty.items():
        if name in spoken:
            yield name
        else:
            cloud.says(service, operation, answer, region=region)


def prepare(cloud, **spoken):
    for name in quiet_but(cloud, *spoken):
        spoken[name]()


def rates(found):
    return {
        (rate.option, rate.region, rate.terms): rate.usd_per_hour
        for reading in found.readings
        for rate in reading.rates
    }


@pytest.mark.slow
def test_pages_empty_ones_among_them_and_two_skus_of_one_machine(cloud):
    def products():
        filters = [{"Type": "TERM_MATCH", "Field": ANY, "Value": ANY}] * (len(WANTED) + 3)
        asked = {"ServiceCode": "AmazonEC2", "Filters": filters}
        pages = [[product("A", 21.5)], [], [product("B", 21.5), product("C", 22)]]
        for number, page in enumerate(pages):
            token = {"NextToken": f"t{number}"} if number else {}
            more = {"NextToken": f"t{number + 1}"} if number < len(pages) - 1 else {}
            cloud.says(
                "pricing", "get_products", {"PriceList": page, **more}, {**asked, **token}, HOME
            )

    prepare(cloud, products=products)
    found = cloud.ask("trn1.32xlarge")
    assert rates(found) == {("on-demand", REGION, None): 22}
    assert "two rates" in found.readings[0].warnings[0]
    assert found.failures == []


def test_another_currency_is_told_and_left_out(cloud):
    def products():
        answer = {"PriceList": [product("A", 99, "CNY")]}
        cloud.says("pricing", "get_products", answer, region=HOME)

    prepare(cloud, products=products)
    found = cloud.ask("trn1.32xlarge")
    assert rates(found) == {}
    assert "CNY" in found.readings[0].warnings[0]


def test_a_service_that_asks_for_patience_is_asked_again_later_and_later(cloud):
    def spot():
        for code in ("RequestLimitExceeded", "Throttling", "ThrottlingException"):
            cloud.refuses("ec2", "describe_spot_price_history", code)
        history = {
            "AvailabilityZone": "us-east-2b",
            "AvailabilityZoneId": "use2-az2",
            "InstanceType": "trn1.32xlarge",
            "ProductDescription": "Linux/UNIX",
            "SpotPrice": "2.15",
            "Timestamp": NOW,
        }
        cloud.says("ec2", "describe_spot_price_history", {"SpotPriceHistory": [history]})

    prepare(cloud, spot=spot)
    assert rates(cloud.ask("trn1.32xlarge")) == {("spot", REGION, None): 2.15}
    assert cloud.pauses == [1, 2, 4]


def test_patience_ends(cloud):
    def savings():
        for _ in range(6):
            operation = "describe_savings_plans_offering_rates"
            cloud.refuses("savingsplans", operation, "ThrottlingException", HOME)

    prepare(cloud, savings=savings)
    found = cloud.ask("trn1.32xlarge")
    assert [failure.split(":")[0] for failure in found.failures] == ["Savings Plans"]


def test_what_one_service_refuses_leaves_the_others_and_names_nobody(cloud):
    def products():
        cloud.says("pricing", "get_products", {"PriceList": [product("A", 21.5)]}, region=HOME)

    def blocks():
        cloud.refuses("ec2", "describe_capacity_block_offerings", "UnauthorizedOperation")

    quiet = {"products": products, "blocks": blocks, "blocks-14": lambda: None}
    prepare(cloud, **quiet)
    found = cloud.ask("trn1.32xlarge")
    assert rates(found) == {("on-demand", REGION, None): 21.5}
    (failure,) = found.failures
    assert failure.startswith(f"Capacity Blocks in {REGION}")
    assert "arn:" not in failure
    assert "123456789012" not in failure


def test_blocks_plans_quotas_and_reservations(cloud):
    quota = Quota(name="Running Trn", code="L-1", options=("on-demand",), families=("trn",))

    def blocks():
        block = {
            "CapacityBlockOfferingId": "cb-1",
            "InstanceType": "trn1.32xlarge",
            "AvailabilityZone": "us-east-2b",
            "InstanceCount": 4,
            "StartDate": NOW,
            "CapacityBlockDurationHours": 24,
            "UpfrontFee": "960",
            "CurrencyCode": "USD",
        }
        operation = "describe_capacity_block_offerings"
        asked = {
            "InstanceType": "trn1.32xlarge",
            "InstanceCount": 1,
            "CapacityDurationHours": 24,
            "AllAvailabilityZones": True,
        }
        cloud.says("ec2", operation, {"CapacityBlockOfferings": [block]}, asked)

    def plans():
        part = {
            "InstanceType": "ml.trn1.32xlarge",
            "InstanceCount": 1,
            "AvailabilityZone": "us-east-2b",
            "StartTime": NOW,
        }
        plan = {
            "TrainingPlanOfferingId": "tp",
            "TargetResources": ["training-job"],
            "DurationHours": 24,
            "UpfrontFee": "480",
            "CurrencyCode": "USD",
            "ReservedCapacityOfferings": [part],
        }
        answer = {"TrainingPlanOfferings": [plan]}
        cloud.says("sagemaker", "search_training_plan_offerings", answer)

    def held():
        one = {
            "CapacityReservationId": "cr-1",
            "OwnerId": "123456789012",
            "CapacityReservationArn": ARN,
            "InstanceType": "trn1.32xlarge",
            "TotalInstanceCount": 8,
            "AvailableInstanceCount": 3,
            "StartDate": NOW,
        }
        cloud.says("ec2", "describe_capacity_reservations", {"CapacityReservations": [one]})

    answer = {"Quota": {"QuotaCode": "L-1", "Value": 512.0, "QuotaArn": ARN}}
    cloud.says("service-quotas", "get_service_quota", answer)
    prepare(cloud, blocks=blocks, plans=plans, held=held)
    found = cloud.ask("trn1.32xlarge", quotas=(quota,))
    assert rates(found) == {("capacity-block", REGION, None): 10}
    assert {offer.kind: offer.usd_per_hour for offer in found.offers} == {
        "capacity-block": 10,
        "training-plan": 20,
    }
    assert [(one.code, one.vcpus) for one in found.limits] == [("L-1", 512)]
    assert [(one.nodes, one.free) for one in found.held] == [(8, 3)]
    assert "123456789012" not in repr(found)


def test_an_ultraserver_is_asked_for_by_the_sellers_name(cloud):
    def blocks():
        for hours in (24, 336):
            asked = {
                "UltraserverType": "u-trn2x64",
                "UltraserverCount": 1,
                "CapacityDurationHours": hours,
                "AllAvailabilityZones": True,
            }
            cloud.says("ec2", "describe_capacity_block_offerings", {}, asked)

    skipped = dict.fromkeys(("products", "savings", "spot", "blocks-14", "plans"), lambda: None)
    prepare(cloud, blocks=blocks, **skipped)
    assert cloud.ask("trn2-ultraserver").failures == []


def test_a_machine_that_a_service_does_not_know_is_not_sold_there(cloud):
    def blocks():
        for _ in range(2):
            cloud.refuses("ec2", "describe_capacity_block_offerings", "InvalidParameterValue")

    def plans():
        cloud.refuses("sagemaker", "search_training_plan_offerings", "ValidationException")

    prepare(cloud, blocks=blocks, plans=plans, **{"blocks-14": lambda: None})
    assert cloud.ask("trn1.32xlarge").failures == []


def test_savings_plans_of_one_year_and_three(cloud):
    def offering(rate, years, **changed):
        about = {
            "region": REGION,
            "instanceType": "trn1.32xlarge",
            "productDescription": "Linux/UNIX",
            "tenancy": "shared",
            **changed,
        }
        return {
            "savingsPlanOffering": {
                "offeringId": "o",
                "paymentOption": "No Upfront",
                "planType": "Compute",
                "durationSeconds": years * 31_536_000,
                "currency": "USD",
            },
            "rate": rate,
            "unit": "Hrs",
            "properties": [{"name": key, "value": value} for key, value in about.items()],
        }

    def savings():
        operation = "describe_savings_plans_offering_rates"
        first = {
            "searchResults": [offering("13", 1), offering("1", 1, tenancy="host")],
            "nextToken": "t",
        }
        cloud.says("savingsplans", operation, first, region=HOME)
        cloud.says("savingsplans", operation, {"searchResults": [offering("9", 3)]}, region=HOME)

    prepare(cloud, savings=savings)
    assert rates(cloud.ask("trn1.32xlarge")) == {
        ("savings-plan", REGION, "1 year, no upfront, Compute plan"): 13,
        ("savings-plan", REGION, "3 years, no upfront, Compute plan"): 9,
    }


def test_the_policy_allows_what_is_asked_and_no_more(cloud):
    """Every operation that boto3 has under an action's name, and none else, is called."""
    called: Counter[tuple[str, str]] = Counter()

    class Recorder:
        def __init__(self, service):
            self.service = service

        def __getattr__(self, operation):
            name = "".join(word.title() for word in operation.split("_"))
            return lambda **asked: called.update([(self.service, name)]) or {}

    catalog = open_catalog()
    question = AwsQuestion(
        instances=[load_instance(catalog, "trn1.32xlarge")],
        regions=(REGION,),
        quotas=[Quota(name="q", code="L-1", options=("spot",), families=("trn",))],
        known=lambda name: None,
        now=NOW,
    )
    read_aws(question, lambda service, region: Recorder(service))
    assert set(called) == {
        (service, action.split(":")[1])
        for service, actions in POLICY_ACTIONS.items()
        for action in actions
    }


@pytest.mark.slow
def test_rates_of_aws_join_the_users_lists_without_names_of_accounts(cloud, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def products():
        cloud.says("pricing", "get_products", {"PriceList": [product("A", 20)]}, region=HOME)

    prepare(cloud, products=products)
    rules = open_catalog()
    for quota in load_quotas(rules):
        answer = {"Quota": {"QuotaCode": quota.code, "Value": 1.0, "QuotaArn": ARN}}
        cloud.says("service-quotas", "get_service_quota", answer)
    found = refresh_prices("aws", regions=[REGION], on=["trn1.32xlarge"], clients=cloud)
    ((path, text),) = found.files
    assert path.name == "trn1.32xlarge.toml"
    assert '"20 USD/h"' in text
    assert "arn:" not in text
    assert found.failures == ()


def load_quotas(catalog):
    from trnbench.facts.prices.purchase import load_purchase_rules

    rules = load_purchase_rules(catalog, "aws")
    assert rules is not None
    return rules.quota
