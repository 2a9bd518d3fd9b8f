"""From ready at the provider to running in five seconds, plus the look at the SSH port, however many are waiting."""

import pytest
from gpulease.domain.lease import LeaseState

from tests.cases.conftest import NewWorld

SSH_AFTER_CREATE_SECONDS = 90.0
"""Of the steady VM: ok at 60 s, SSH at 90 s."""
NOTICE_SECONDS = 5.0


@pytest.mark.parametrize("leases", [1, 40])
def test_ready_is_noticed_within_five_seconds(new_world: NewWorld, leases: int) -> None:
    world = new_world()

    ids = [world.up() for _ in range(leases)]
    for lease_id in ids:
        world.until(lease_id, LeaseState.RUNNING, within=300)

    for lease_id in ids:
        created = world.cloud.book.get(world.machine_of(lease_id).provider_id).created - world.t0
        [ready] = [e for e in world.events(lease_id, "instance_state") if e.text.endswith("active/running/ok")]
        running = world.lease(lease_id).running_at
        assert running is not None
        assert ready.at.timestamp() - world.t0 - (created + 60) <= NOTICE_SECONDS
        assert running.timestamp() - world.t0 - (created + SSH_AFTER_CREATE_SECONDS) <= NOTICE_SECONDS
