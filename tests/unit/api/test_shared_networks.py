"""What users see of a network they share: it, and how many use it, in their lease; its holder nowhere."""

import pytest
from gpulease.domain.lease import Attachment
from gpulease.domain.resource import BillingRule, ResourceKind, ResourceState
from gpulease.domain.shared_network import Place, new_holder
from gpulease.ports import Change

from tests.support.api_events import ALICE, Client
from tests.support.api_world import ADMIN, START, World, running_lease
from tests.support.ledger_samples import a_resource


def with_shared_network(world: World, lease_id: str, **attachment: bool) -> str:
    """Let the lease's machine and one of another lease use one network; the holder's id."""
    holder, told = new_holder(Place(ALICE, "vultr", "ewr"), 1, f"{lease_id}.instance.1", START)
    members = (*holder.members, "l-bbbbbbbbbbbb.instance.1")
    world.ledger.create_lease(holder.model_copy(update={"members": members}), (told,))
    network = a_resource(holder.id, id=f"{holder.id}.network.1", kind=ResourceKind.NETWORK).model_copy(
        update={"state": ResourceState.HELD, "provider_id": "v-1", "billing": BillingRule.FREE, "rates": ()}
    )
    world.ledger.commit(Change(holder.id, resources=(network,)))
    lease = world.ledger.load(lease_id).lease
    noted = Attachment(holder_id=holder.id).model_copy(update=attachment)
    attempts = (lease.attempts[0].model_copy(update={"attachment": noted}),)
    world.ledger.commit(Change(lease_id, lease=lease.model_copy(update={"attempts": attempts})))
    return holder.id


def test_a_lease_shows_the_network_it_shares_and_how_many_others_use_it(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    before = client.get(f"/v1/leases/{lease_id}").json
    with_shared_network(world, lease_id)

    lease = client.get(f"/v1/leases/{lease_id}").json

    machine, network = lease["resources"]
    assert (machine["shared"], machine["used_by_others"]) == (False, 0)
    assert (network["kind"], network["shared"], network["used_by_others"]) == ("network", True, 1)
    assert network["billed"] is False
    assert lease["cost_so_far_usd"] == before["cost_so_far_usd"]


@pytest.mark.parametrize("gone", ["left", "dropped"])
def test_a_network_that_the_lease_does_not_use_any_more_is_not_shown(world: World, client: Client, gone: str) -> None:
    lease_id = running_lease(world, client)
    with_shared_network(world, lease_id, **{gone: True})

    assert len(client.get(f"/v1/leases/{lease_id}").json["resources"]) == 1


def test_nobody_sees_or_ends_the_holder_of_a_shared_network(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    holder_id = with_shared_network(world, lease_id)

    for who in (client, world.client(ADMIN)):
        assert who.get(f"/v1/leases/{holder_id}").status == 404
        assert who.delete(f"/v1/leases/{holder_id}").status == 404
    assert [row["id"] for row in client.get("/v1/leases").json["leases"]] == [lease_id]
    everybodys = world.client(ADMIN).get("/v1/leases", query="all=true").json["leases"]
    assert [row["id"] for row in everybodys] == [lease_id]


@pytest.mark.parametrize(("asked", "kept"), [({}, "owner"), ({"network_scope": "lease"}, "lease")])
def test_a_private_network_is_the_owners_unless_asked_otherwise(
    client: Client, asked: dict[str, str], kept: str
) -> None:
    lease = client.post({"gpu": ["A100"], "private_network": "preferred", **asked}).json

    assert lease["spec"]["network_scope"] == kept
    assert client.post({"gpu": ["A100"], "network_scope": "team"}).status == 422
