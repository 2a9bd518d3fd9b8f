"""A read that shows nothing is one look: what is there is not taken for gone by it."""

import pytest
from gpulease.domain.observation import Absent, Observation
from gpulease.domain.resource import marker_for
from gpulease_sim.aws import Fault

from tests.support.aws_world import AwsWorld, launch
from tests.support.provider_world import DEPLOYMENT, ref_of
from tests.support.volume_contract import ready_volume


@pytest.fixture
def world() -> AwsWorld:
    return AwsWorld()


def made(world: AwsWorld, kind: str) -> Observation:
    if kind == "DescribeInstances":
        return launch(world)
    return ready_volume(world, marker_for(DEPLOYMENT, "c-aaaaaaaaaaaa.volume.1"))


@pytest.mark.parametrize("kind", ["DescribeInstances", "DescribeVolumes"])
def test_what_an_empty_answer_does_not_show_is_looked_for_in_a_list(world: AwsWorld, kind: str) -> None:
    seen = made(world, kind)
    world.advance(60)
    world.cloud.faults.add(Fault(action=kind, empty=True, times=1))

    again = world.provider.observe(ref_of(seen))

    assert isinstance(again, Observation) and again.provider_id == seen.provider_id


@pytest.mark.parametrize("kind", ["DescribeInstances", "DescribeVolumes"])
def test_what_neither_shows_is_absent(world: AwsWorld, kind: str) -> None:
    seen = made(world, kind)
    world.advance(60)
    world.cloud.faults.add(Fault(action=kind, empty=True, times=2))

    assert isinstance(world.provider.observe(ref_of(seen)), Absent)
