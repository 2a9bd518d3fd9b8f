"""Hooks for programs on simulated machines: told at the right moments, and able to act back."""

from dataclasses import dataclass, field

from gpulease_sim.aws import GuestView

from tests.support.ec2_world import PERSISTENT, SPOT, START, Ec2World, steady, tags


@dataclass
class Diary:
    """Writes down what it is told."""

    told: list[tuple[str, float]] = field(default_factory=list)
    views: list[GuestView] = field(default_factory=list)

    def _note(self, what: str, guest: GuestView, at: float) -> None:
        self.told.append((what, at - START))
        self.views.append(guest)

    def booted(self, guest: GuestView, at: float) -> None:
        self._note("booted", guest, at)

    def stopped(self, guest: GuestView, at: float) -> None:
        self._note("stopped", guest, at)

    def volume_attached(self, guest: GuestView, volume_id: str, device: str, at: float) -> None:
        self._note(f"attached {device}", guest, at)

    def volume_detached(self, guest: GuestView, volume_id: str, device: str, at: float) -> None:
        self._note(f"detached {device}", guest, at)

    def interruption_notice(self, guest: GuestView, at: float, ends_at: float) -> None:
        self._note(f"notice {ends_at - at:.0f}", guest, at)


def watched(world: Ec2World) -> Diary:
    diary = Diary()
    world.cloud.guests.append(diary)
    return diary


def test_a_guest_boots_once_per_start_at_its_own_moment_whoever_looks_when() -> None:
    world = Ec2World()
    diary = watched(world)
    made = world.launch()
    world.wait(1000)
    world.ec2.stop_instances(InstanceIds=[made])
    world.wait(1000)
    world.ec2.start_instances(InstanceIds=[made])
    world.wait(1000)
    world.ec2.terminate_instances(InstanceIds=[made])

    assert diary.told == [("booted", 50), ("stopped", 1000), ("booted", 2050), ("stopped", 3000)]
    assert [view.boots for view in diary.views] == [1, 1, 2, 2]


def test_a_guest_knows_what_its_machine_was_launched_with() -> None:
    world = Ec2World()
    diary = watched(world)
    made = world.running(UserData="#cloud-config\n", TagSpecifications=tags(owner="me"))
    world.cloud.advance()
    view = diary.views[0]
    shown = world.show(made)

    assert (view.instance_id, view.zone, view.instance_type) == (made, "us-east-1a", "g6.xlarge")
    assert (view.user_data, view.tags, view.spot) == (b"#cloud-config\n", {"owner": "me"}, False)
    assert (view.public_ip, view.private_ip) == (shown["PublicIpAddress"], shown["PrivateIpAddress"])
    assert view.volumes == {"/dev/sda1": shown["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]}


def test_a_machine_that_is_terminated_before_it_boots_never_had_a_guest() -> None:
    world = Ec2World()
    diary = watched(world)
    made = world.launch()
    world.wait(30)
    world.ec2.terminate_instances(InstanceIds=[made])
    world.wait(1000)
    world.cloud.advance()

    assert diary.told == []


def test_volumes_come_and_go_while_the_guest_runs() -> None:
    world = Ec2World()
    volume, machine = world.free_volume(), world.running()
    world.cloud.advance()
    diary = watched(world)
    start = world.now - START
    world.attach(volume, machine)
    world.wait(5)
    world.ec2.detach_volume(VolumeId=volume)
    world.wait(8)
    world.cloud.advance()

    assert diary.told == [("attached /dev/sdf", start + 5), ("detached /dev/sdf", start + 13)]
    assert diary.views[0].volumes["/dev/sdf"] == volume


def test_a_volume_attached_to_a_stopped_machine_is_there_when_it_boots() -> None:
    world = Ec2World()
    volume, machine = world.free_volume(), world.running()
    world.ec2.stop_instances(InstanceIds=[machine])
    world.wait(60)
    world.attach(volume, machine)
    world.wait(10)
    diary = watched(world)
    world.ec2.start_instances(InstanceIds=[machine])
    world.wait(60)
    world.cloud.advance()

    assert [each for each, _ in diary.told] == ["booted"]
    assert diary.views[0].volumes["/dev/sdf"] == volume


def test_a_spot_guest_hears_of_its_end_before() -> None:
    world = Ec2World(steady(instance={"reclaim_seconds": 1000}))
    diary = watched(world)
    world.launch(InstanceMarketOptions=SPOT)
    world.wait(2000)
    world.cloud.advance()

    assert diary.told == [("booted", 50), ("notice 120", 880), ("stopped", 1000)]


def test_an_instance_that_ec2_stopped_boots_again_by_itself() -> None:
    world = Ec2World(steady(instance={"reclaim_seconds": 1000}))
    diary = watched(world)
    world.launch(InstanceMarketOptions=PERSISTENT)
    world.wait(3000)
    world.cloud.advance()

    assert [each for each, _ in diary.told] == ["booted", "notice 120", "stopped", "booted"]


def test_a_hook_may_act_back_at_its_moment() -> None:
    class ShutsDown(Diary):
        def booted(self, guest: GuestView, at: float) -> None:
            super().booted(guest, at)
            world.cloud.guest_shutdown(guest.instance_id)

    world = Ec2World()
    diary = ShutsDown()
    world.cloud.guests.append(diary)
    made = world.launch(InstanceInitiatedShutdownBehavior="terminate")
    world.wait(51)
    assert world.state(made) == "shutting-down"
    world.wait(5000)

    assert diary.told == [("booted", 50), ("stopped", 50)]
    assert world.cloud.book.get(made).destroyed == START + 80


def test_a_guest_may_crash_by_itself() -> None:
    world = Ec2World(steady(instance={"crash_seconds": 500}))
    diary = watched(world)
    made = world.launch()
    world.wait(600)

    assert world.state(made) == "stopped"
    assert diary.told == [("booted", 50), ("stopped", 500)]


def test_the_next_event_is_known() -> None:
    world = Ec2World()
    assert world.cloud.next_event() is None
    world.launch()

    assert world.cloud.next_event() == START + 20
