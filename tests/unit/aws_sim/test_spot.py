"""Spot instances and the requests behind them."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.support.ec2_world import PERSISTENT, SPOT, Ec2World, code_of, steady, tags


def requested(world: Ec2World) -> tuple[str, str]:
    found = world.ec2.describe_spot_instance_requests()["SpotInstanceRequests"][0]
    return found["State"], found["Status"]["Code"]


def test_a_spot_launch_makes_a_request_that_names_its_instance() -> None:
    world = Ec2World()
    made = world.launch(InstanceMarketOptions=SPOT)
    request = world.spot_request(made)
    shown = world.show(made)

    assert (request["State"], request["Status"]["Code"], request["Type"]) == ("active", "fulfilled", "one-time")
    assert (shown["InstanceLifecycle"], shown["SpotInstanceRequestId"]) == ("spot", request["SpotInstanceRequestId"])


def test_an_on_demand_launch_makes_none() -> None:
    world = Ec2World()
    shown = world.show(world.launch())

    assert "InstanceLifecycle" not in shown
    assert world.ec2.describe_spot_instance_requests()["SpotInstanceRequests"] == []


def test_a_refused_spot_launch_leaves_no_request() -> None:
    world = Ec2World(steady(capacity={"*/*": 0}))
    code_of(world.ec2.run_instances, **world.request(InstanceMarketOptions=SPOT))

    assert world.ec2.describe_spot_instance_requests()["SpotInstanceRequests"] == []
    assert world.cloud.book.objects() == []


def test_the_end_of_a_one_time_instance_closes_its_request() -> None:
    world = Ec2World()
    made = world.running(InstanceMarketOptions=SPOT)
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(600)

    assert requested(world) == ("closed", "instance-terminated-by-user")
    assert world.listed(("instance-state-name", "running")) == []
    assert world.cloud.book.billed() == []


def test_c25_a_persistent_request_launches_another_untagged_instance_after_terminate() -> None:
    world = Ec2World()
    made = world.running(InstanceMarketOptions=PERSISTENT, TagSpecifications=tags(owner="me"))
    request = world.spot_request(made)["SpotInstanceRequestId"]
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(30)
    assert requested(world) == ("open", "instance-terminated-by-user")
    world.wait(90)
    (again,) = world.listed(("spot-instance-request-id", request), ("instance-state-name", "running"))

    assert again != made
    assert "Tags" not in world.show(again)
    assert requested(world) == ("active", "fulfilled")
    assert again in {each.id for each in world.cloud.book.billed(free=False)}


def test_cancelling_first_and_terminating_then_ends_it_for_good() -> None:
    world = Ec2World()
    made = world.running(InstanceMarketOptions=PERSISTENT)
    request = world.spot_request(made)["SpotInstanceRequestId"]
    answer = world.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request])
    assert answer["CancelledSpotInstanceRequests"][0]["State"] == "cancelled"
    world.wait(600)
    assert world.state(made) == "running"
    assert requested(world) == ("cancelled", "request-canceled-and-instance-running")
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(600)

    assert world.cloud.book.billed() == []


def test_cancelling_an_open_request_keeps_the_next_instance_away() -> None:
    world = Ec2World()
    made = world.running(InstanceMarketOptions=PERSISTENT)
    request = world.spot_request(made)["SpotInstanceRequestId"]
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(40)
    world.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request])
    world.wait(600)

    assert world.cloud.book.billed() == []


def test_a_persistent_one_stops_and_starts_but_not_at_once() -> None:
    world = Ec2World()
    made = world.running(InstanceMarketOptions=PERSISTENT)
    world.ec2.stop_instances(InstanceIds=[made])
    assert requested(world) == ("active", "marked-for-stop")
    world.wait(45)
    assert world.state(made) == "stopped"
    assert code_of(world.ec2.start_instances, InstanceIds=[made]) == "IncorrectSpotRequestState"
    world.wait(10)
    assert requested(world) == ("disabled", "instance-stopped-by-user")
    world.ec2.start_instances(InstanceIds=[made])
    world.wait(30)

    assert world.state(made) == "running"
    assert requested(world) == ("active", "fulfilled")


def test_cancelling_the_request_of_a_stopped_instance_terminates_it_after_a_while() -> None:
    world = Ec2World()
    made = world.running(InstanceMarketOptions=PERSISTENT)
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(60)
    request = world.spot_request(made)["SpotInstanceRequestId"]
    world.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request])
    states = [world.state(made)]
    world.wait(60)
    states.append(world.state(made))

    assert states == ["stopped", "terminated"]


def test_an_instance_whose_request_was_cancelled_cannot_be_stopped() -> None:
    world = Ec2World()
    made = world.running(InstanceMarketOptions=PERSISTENT)
    request = world.spot_request(made)["SpotInstanceRequestId"]
    world.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request])

    assert code_of(world.ec2.stop_instances, InstanceIds=[made]) == "UnsupportedOperation"


def test_a_reclaim_gives_notice_and_then_terminates() -> None:
    world = Ec2World(steady(instance={"reclaim_seconds": 1000}))
    made = world.running(InstanceMarketOptions=SPOT)
    world.wait(819)
    assert world.cloud.interruption(made) is None
    world.wait(1)
    assert world.cloud.interruption(made) == world.now + 120
    assert requested(world) == ("active", "marked-for-termination")
    assert world.state(made) == "running"
    world.wait(120)
    assert world.state(made) == "shutting-down"
    world.wait(30)

    assert world.state(made) == "terminated"
    assert world.show(made)["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert requested(world) == ("closed", "instance-terminated-no-capacity")


def test_c29_a_reclaim_can_come_before_the_guest_is_up() -> None:
    world = Ec2World(steady(instance={"reclaim_seconds": 40, "guest_boot_seconds": 600}))
    made = world.launch(InstanceMarketOptions=SPOT)
    world.wait(20)
    assert world.state(made) == "running"
    world.wait(50)

    assert world.state(made) == "terminated"


def test_an_interruption_that_stops_is_undone_by_ec2_alone() -> None:
    world = Ec2World()
    made = world.running(InstanceMarketOptions=PERSISTENT)
    world.cloud.reclaim(made)
    world.wait(120 + 60)
    assert world.state(made) == "stopped"
    assert requested(world) == ("disabled", "instance-stopped-no-capacity")
    assert code_of(world.ec2.start_instances, InstanceIds=[made]) == "IncorrectSpotRequestState"
    world.wait(400)

    assert world.state(made) == "running"


def test_on_demand_is_not_reclaimed() -> None:
    world = Ec2World(steady(instance={"reclaim_seconds": 100}))
    made = world.running()
    world.wait(1000)

    assert world.state(made) == "running"


def test_an_unknown_request_is_refused() -> None:
    world = Ec2World()
    for call in (world.ec2.describe_spot_instance_requests, world.ec2.cancel_spot_instance_requests):
        assert code_of(call, SpotInstanceRequestIds=["sir-00000000"]) == "InvalidSpotInstanceRequestID.NotFound"


@pytest.mark.parametrize("state", ["active", "cancelled"])
def test_requests_are_filtered_by_state_and_tag(state: str) -> None:
    world = Ec2World()
    given = tags(("spot-instances-request",), owner="me")
    for _ in range(2):
        world.launch(InstanceMarketOptions=SPOT, TagSpecifications=given)
    all_of_them = world.ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    world.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[all_of_them[0]["SpotInstanceRequestId"]])
    filters = [{"Name": "state", "Values": [state]}, {"Name": "tag:owner", "Values": ["me"]}]

    assert len(world.ec2.describe_spot_instance_requests(Filters=filters)["SpotInstanceRequests"]) == 1


# --- prices -----------------------------------------------------------------------------------------------------------


def history(world: Ec2World, **change: Any) -> dict[str, str]:
    """Zone to price now."""
    at = datetime.fromtimestamp(world.now, UTC)
    asked = {"InstanceTypes": ["g6.xlarge"], "ProductDescriptions": ["Linux/UNIX"], "StartTime": at, "EndTime": at}
    found = world.ec2.describe_spot_price_history(**(asked | change))["SpotPriceHistory"]
    return {each["AvailabilityZone"]: each["SpotPrice"] for each in found}


def test_the_price_history_tells_what_each_zone_asks_now() -> None:
    world = Ec2World(steady(spot_usd={"us-east-1b/g6.xlarge": Decimal("0.5")}, not_offered={"us-east-1c/g6.xlarge"}))

    prices = history(world)

    assert prices["us-east-1a"] == "0.321920"
    assert prices["us-east-1b"] == "0.500000"
    assert "us-east-1c" not in prices
    assert history(world, AvailabilityZone="us-east-1b") == {"us-east-1b": "0.500000"}
    assert history(world, ProductDescriptions=["Windows"]) == {}


def test_the_price_history_has_pages() -> None:
    world = Ec2World()
    pages = world.ec2.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=["g6.xlarge", "g5.xlarge"], ProductDescriptions=["Linux/UNIX"], PaginationConfig={"PageSize": 5}
    )

    found = [(each["InstanceType"], each["AvailabilityZone"]) for page in pages for each in page["SpotPriceHistory"]]

    assert len(found) == len(set(found)) == 12


def test_a_spot_instance_is_billed_at_its_zones_price() -> None:
    world = Ec2World(steady(spot_usd={"us-east-1a/g6.xlarge": Decimal("0.5")}))
    made = world.running(InstanceMarketOptions=SPOT, InstanceType="g6.xlarge")

    assert world.cloud.book.get(made).hourly_usd in (Decimal("0.5"), Decimal("0.505"))


@pytest.mark.parametrize(("most", "code"), [("0.32", "SpotMaxPriceTooLow"), ("0", "SpotMaxPriceTooLow"), ("dear", "")])
def test_a_launch_that_would_pay_less_than_the_price_is_refused(most: str, code: str) -> None:
    world = Ec2World()
    market = {"MarketType": "spot", "SpotOptions": {"MaxPrice": most}}

    told = code_of(world.ec2.run_instances, **world.request(InstanceMarketOptions=market, InstanceType="g6.xlarge"))

    assert told == (code or "InvalidParameterValue")
    assert world.cloud.book.objects() == []


def test_a_launch_that_would_pay_the_price_is_made() -> None:
    world = Ec2World()
    market = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.33"}}

    assert world.launch(InstanceMarketOptions=market, InstanceType="g6.xlarge")
