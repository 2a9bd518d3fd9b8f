"""The client repeats what may be repeated, and nothing else."""

import socket

import pytest
from gpulease_cli.client import ApiProblem, ApiUnreachable, Client

from tests.support.cli_world import WaitingClock
from tests.support.fake_api import OFFER, TOKEN, FakeApi, Fault, lease


@pytest.fixture
def client(api: FakeApi) -> Client:
    return Client(api.url, TOKEN, clock=WaitingClock())


def test_a_post_whose_answer_was_lost_is_repeated_with_its_key_and_rents_once(api: FakeApi, client: Client) -> None:
    api.created.append([lease()])
    api.faults = [Fault("POST", carried_out=True), Fault("POST")]

    made = client.create_lease({"gpu": ["A100"]}, idempotency_key="k")

    assert made.id == "l-aaaaaaaaaaaa"
    assert [item.headers["idempotency-key"] for item in api.of("POST")] == ["k", "k", "k"]
    assert len(api.scripts) == 1


def test_a_post_that_is_never_answered_says_that_it_may_have_arrived(api: FakeApi, client: Client) -> None:
    api.faults = [Fault("POST")] * 4

    with pytest.raises(ApiUnreachable) as caught:
        client.create_lease({}, idempotency_key="k")

    assert caught.value.sent
    assert len(api.of("POST")) == 4


def test_a_refused_connection_ends_at_once_and_was_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    clock = WaitingClock()

    with pytest.raises(ApiUnreachable, match="connection refused") as caught:
        Client(f"http://127.0.0.1:{port}", clock=clock).create_lease({}, idempotency_key="k")

    assert not caught.value.sent
    assert clock.slept == 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 500])
def test_a_refusal_is_not_repeated(api: FakeApi, client: Client, status: int) -> None:
    problem = {"title": "No", "detail": "not like this", "code": "no", "errors": [{"field": "gpu", "message": "wrong"}]}
    api.faults = [Fault("POST", status, problem)]

    with pytest.raises(ApiProblem, match="not like this") as caught:
        client.create_lease({}, idempotency_key="k")

    assert (caught.value.status, caught.value.code, caught.value.errors[0].field) == (status, "no", "gpu")
    assert len(api.of("POST")) == 1


def test_an_answer_that_says_later_is_waited_for(api: FakeApi) -> None:
    clock = WaitingClock()
    api.created.append([lease()])
    api.faults = [Fault("POST", 503, headers={"Retry-After": "4"})]

    Client(api.url, TOKEN, clock=clock).create_lease({}, idempotency_key="k")

    assert clock.slept == 4


def test_an_answer_that_asks_for_long_patience_is_told_at_once(api: FakeApi, client: Client) -> None:
    api.faults = [Fault("GET", 503, {"title": "Not yet"}, headers={"Retry-After": "300"})]

    with pytest.raises(ApiProblem, match="Not yet"):
        client.offers()

    assert len(api.seen) == 1


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b"", b"\xff"])
def test_an_answer_that_is_not_ours_is_said_to_be_so(api: FakeApi, client: Client, raw: bytes) -> None:
    api.faults = [Fault("GET", 200, raw=raw), Fault("GET", 200, raw=raw)]

    with pytest.raises(ApiUnreachable, match=r"is this gpulease's API\?"):
        client.health()


def test_a_redirect_is_not_followed_because_the_token_would_go_along(api: FakeApi, client: Client) -> None:
    api.faults = [Fault("GET", 302, headers={"Location": "http://127.0.0.1:1/"})]

    with pytest.raises(ApiProblem) as caught:
        client.health()

    assert caught.value.status == 302
    assert len(api.seen) == 1


def test_lists_are_read_to_their_end_also_over_empty_pages(api: FakeApi, client: Client) -> None:
    api.page_size = 2
    for number in "abcde":
        api.add(lease(f"l-{number * 12}", name=number))
    api.events = [{"at": "2026-01-05T12:00:00Z", "kind": "k", "text": str(i), "level": "info"} for i in range(5)]

    assert [item.name for item in client.leases()] == list("abcde")
    assert [item.text for item in client.all_events("l-aaaaaaaaaaaa")] == list("01234")


def test_a_list_that_never_moves_on_is_not_read_for_ever(api: FakeApi, client: Client) -> None:
    same = b'{"leases": [], "cursor": "again"}'
    api.faults = [Fault("GET", 200, raw=same)] * 2

    with pytest.raises(ApiUnreachable, match="same page twice"):
        list(client.leases())


def test_filters_are_sent_as_repeated_parameters(api: FakeApi, client: Client) -> None:
    client.offers([("gpu", "A100"), ("gpu", "RTX A6000")])

    assert api.seen[0].query == {"gpu": ["A100", "RTX A6000"]}


def test_a_preview_rents_nothing(api: FakeApi, client: Client) -> None:
    found = client.preview({"gpu": ["A100"]})

    assert [item.raw for item in found.offers] == [OFFER]
    assert api.scripts == {}


def test_ages_are_counted_from_the_clock_of_the_api(api: FakeApi) -> None:
    clock = WaitingClock()
    client = Client(api.url, TOKEN, clock=clock)
    api.date = "Mon, 05 Jan 2026 15:02:00 GMT"

    client.offers()

    assert (client.now() - clock.now()).total_seconds() == 3 * 3600


def test_texts_that_came_over_the_network_cannot_steer_the_terminal(api: FakeApi, client: Client) -> None:
    api.add(lease(waiting_for="\x1b]0;owned\x07 the machine", reason_detail="a\nb"))

    read = client.lease("l-aaaaaaaaaaaa")

    assert "\x1b" not in read.waiting_for
    assert read.reason_detail == "a b"


def test_unknown_fields_and_states_of_a_newer_api_do_not_matter(api: FakeApi, client: Client) -> None:
    api.add({"id": "l-aaaaaaaaaaaa", "state": "hovering", "colour": "blue", "price_per_hour_usd": None, "next": "soon"})

    read = client.lease("l-aaaaaaaaaaaa")

    assert (read.state, read.next_text, read.price_per_hour_usd, read.raw["colour"]) == (
        "hovering",
        "soon",
        None,
        "blue",
    )


def test_the_token_is_in_no_repr_and_no_error(api: FakeApi) -> None:
    client = Client(api.url, "very-secret", clock=WaitingClock())

    with pytest.raises(ApiProblem) as caught:
        client.health()

    assert "very-secret" not in repr(client) + repr(caught.value) + str(vars(caught.value))
