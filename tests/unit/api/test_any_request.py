"""Whatever is sent, the answer is a lease or a problem of the caller's, never a failure of ours."""

import json
from typing import Any

from gpulease.api.schemas import LeaseRequest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.api_world import World

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(sorted(LeaseRequest.model_fields))
bodies = st.dictionaries(names | st.text(max_size=12), values, max_size=5)
keys = st.none() | st.text(max_size=12)
queries = st.sampled_from(
    ["", "dry_run=true", "dry_run", "dry_run=", "&", "=", "%", "dry_run=true&dry_run=false", "x=%00"]
)


@settings(max_examples=150, deadline=None)
@given(body=bodies, key=keys, query=queries)
def test_any_json_object_gets_a_lease_or_a_reason(body: dict[str, Any], key: str | None, query: str) -> None:
    world = World()
    headers = {} if key is None else {"Idempotency-Key": key}

    answer = world.client().post(json.dumps(body), query=query, headers=headers)

    assert answer.status in {200, 202, 400, 422}, (answer.text, world.log.lines)
    assert len(world.ledger.leases_of(None).items) == (1 if answer.status == 202 else 0)
    assert answer.status < 400 or answer.json["status"] == answer.status


@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=60) | st.text(max_size=60))
def test_any_bytes_get_a_lease_or_a_reason(body: bytes | str) -> None:
    world = World()

    answer = world.client().post(body)

    assert answer.status in {202, 400, 422}, (answer.text, world.log.lines)


@settings(max_examples=150, deadline=None)
@given(
    path=st.sampled_from(["/v1/leases", "/v1/leases/l-aaaaaaaaaaaa", "/v1/offers", "/v1/leases/l-aaaaaaaaaaaa/events"])
    | st.text(max_size=20).map("/v1/".__add__),
    query=st.dictionaries(
        st.sampled_from(["limit", "cursor", "state", "name", "all", "gpu", "gpu_count", "min_memory_gib", "spot"]),
        st.text(max_size=12) | st.integers().map(str),
        max_size=3,
    ),
)
def test_any_look_gets_an_answer(path: str, query: dict[str, str]) -> None:
    world = World()

    answer = world.client().get(path, pairs=query)

    assert answer.status in {200, 403, 404, 422}, (answer.text, world.log.lines)
