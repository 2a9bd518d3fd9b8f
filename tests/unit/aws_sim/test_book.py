"""The book: what was paid for, by the second, whatever the client believes."""

from decimal import Decimal

from gpulease_sim.aws import prices

from tests.support.ec2_world import SPOT, Ec2World, steady, tags

HOURLY = prices.HOURLY["g6.xlarge"] + prices.ADDRESS_HOUR


def usd(seconds: float, hourly: Decimal = HOURLY) -> Decimal:
    return (Decimal(str(seconds)) * hourly / 3600).quantize(Decimal("0.000001"))


def test_an_instance_is_billed_per_second_while_it_runs() -> None:
    world = Ec2World()
    made = world.launch()
    world.wait(20 + 1000)
    assert world.cloud.book.get(made).cost_usd == usd(1000)
    assert world.cloud.book.get(made).hourly_usd == HOURLY
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(5000)
    shown = world.cloud.book.get(made)

    assert (shown.cost_usd, shown.hourly_usd) == (usd(1000), Decimal(0))
    assert shown.destroyed is None


def test_each_start_is_billed_for_a_minute_at_least() -> None:
    world = Ec2World()
    made = world.launch()
    world.wait(21)
    for _ in range(2):
        world.ec2.stop_instances(InstanceIds=[made])
        world.wait(60)
        world.ec2.start_instances(InstanceIds=[made])
        world.wait(21)
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(60)
    shown = world.cloud.book.get(made)

    assert shown.cost_usd == usd(3 * 60)
    assert [end and end - start for start, end in shown.running] == [1, 1, 1]


def test_what_never_ran_costs_no_compute() -> None:
    world = Ec2World()
    made = world.launch()
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(60)
    shown = world.cloud.book.get(made)

    assert (shown.cost_usd, shown.destroyed) == (Decimal(0), world.now - 30)
    assert shown.active is None


def test_a_stopped_instance_is_listed_at_nothing_and_its_volume_at_its_price() -> None:
    world = Ec2World()
    made = world.running()
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(60)

    assert [each.kind for each in world.cloud.book.billed(free=False)] == ["volume"]
    assert {each.kind for each in world.cloud.book.billed()} == {"instance", "volume"}


def test_spot_is_cheaper_and_its_request_is_free() -> None:
    world = Ec2World()
    made = world.running(InstanceMarketOptions=SPOT)
    by_kind = {each.kind: each for each in world.cloud.book.objects()}

    assert by_kind["instance"].spot and by_kind["instance"].id == made
    assert by_kind["instance"].hourly_usd < HOURLY / 2
    assert by_kind["spot_request"].cost_usd == 0


def test_a_volume_is_billed_per_gigabyte_month_until_it_is_gone() -> None:
    world = Ec2World()
    made = world.volume(Size=730)
    hourly = Decimal("0.08")
    world.wait(36_000)
    assert world.cloud.book.get(made).cost_usd == usd(36_000, hourly)
    world.ec2.modify_volume(VolumeId=made, Size=1460)
    world.wait(36_000)
    assert world.cloud.book.get(made).cost_usd == usd(3 * 36_000, hourly)
    world.ec2.delete_volume(VolumeId=made)
    world.wait(36_000)
    shown = world.cloud.book.get(made)

    assert shown.cost_usd == usd(3 * 36_000, hourly) + usd(2, 2 * hourly)
    assert shown.destroyed == world.now - 36_000 + 2
    assert shown.size_gb == 1460


def test_an_address_is_billed_from_allocation_to_release() -> None:
    world = Ec2World()
    made = world.ec2.allocate_address(Domain="vpc", TagSpecifications=tags(("elastic-ip",), owner="me"))["AllocationId"]
    world.wait(7200)
    shown = world.cloud.book.get(made)
    assert (shown.kind, shown.cost_usd, shown.tags) == ("address", Decimal("0.01"), {"owner": "me"})
    world.ec2.release_address(AllocationId=made)
    world.wait(7200)

    assert world.cloud.book.get(made).cost_usd == Decimal("0.01")
    assert world.cloud.book.billed() == []


def test_a_snapshot_is_billed_until_it_is_deleted() -> None:
    world = Ec2World()
    volume = world.free_volume(Size=100)
    made = world.ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    world.wait(3600)
    assert world.cloud.book.get(made).kind == "snapshot"
    assert world.cloud.book.get(made).cost_usd > 0
    world.ec2.delete_snapshot(SnapshotId=made)

    assert world.cloud.book.get(made).destroyed == world.now


def test_tags_in_the_book_are_those_of_now_and_stay_after_the_end() -> None:
    world = Ec2World()
    made = world.running(TagSpecifications=tags(gpulease="gpulease:d:l-1.instance.1"))
    world.ec2.create_tags(Resources=[made], Tags=[{"Key": "Name", "Value": "x"}])
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(5000)
    shown = world.cloud.book.get(made)

    assert shown.tags == {"gpulease": "gpulease:d:l-1.instance.1", "Name": "x"}
    assert shown.markers == ("gpulease:d:l-1.instance.1",)


def test_the_book_can_be_read_as_of_an_earlier_moment() -> None:
    world = Ec2World()
    made = world.launch()
    start = world.now
    world.wait(5000)
    world.cloud.remove_by_hand(made)
    world.wait(100)

    assert world.cloud.book.get(made, start + 10).active is None
    assert world.cloud.book.get(made, start + 120).cost_usd == usd(100)
    assert world.cloud.book.billed(start - 1) == []
    assert world.cloud.book.cost() == sum(each.cost_usd for each in world.cloud.book.objects())


def test_prices_can_be_set() -> None:
    world = Ec2World(steady(hourly_usd={"g6.xlarge": Decimal(36)}))
    made = world.launch()
    world.wait(120)

    assert world.cloud.book.get(made).cost_usd == usd(100, Decimal("36.005"))
