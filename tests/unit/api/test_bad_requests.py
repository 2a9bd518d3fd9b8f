"""Every bad request is answered with problem details that name the field and what is right, and creates nothing."""

import json
from typing import Any

import pytest
from gpulease.api.problems import ProblemDetails
from gpulease.domain.spec import MAX_START_SCRIPT_BYTES
from gpulease.errors import LedgerUnavailable

from tests.support.api_events import Answer, Client
from tests.support.api_world import World

SECRET = "hunter2-do-not-echo"  # noqa: S105 - what must not come back


def problem(answer: Answer, status: int) -> Any:
    """The problem details, checked for their form."""
    assert answer.status == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    details = answer.json
    assert details["status"] == status and details["type"] == f"urn:gpulease:problem:{details['code']}"
    assert details["title"] and "Traceback" not in answer.text
    return details


FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"gpu_count": 0}, "gpu_count", "greater than or equal to 1"),
    ({"gpu_count": 17}, "gpu_count", "less than or equal to 16"),
    ({"gpu_count": "two"}, "gpu_count", "number"),
    ({"gpu_count": True}, "gpu_count", "number"),
    ({"gpu_count": 1.5}, "gpu_count", "integer"),
    ({"gpu": "A100"}, "gpu", "list"),
    ({"gpu": ["A100", 7]}, "gpu[1]", "string"),
    ({"gpu": ["A100\n"]}, "gpu[0]", "GPU model such as"),
    ({"gpu": ["B300"]}, "gpu[0]", "known: A100, A16, H100, L40S"),
    ({"gpu": ["A100x"]}, "gpu[0]", "did you mean A100"),
    ({"min_gpu_memory_gib": 0}, "min_gpu_memory_gib", "greater than 0"),
    ({"min_memory_gib": "64"}, "min_memory_gib", "without quotes"),
    ({"min_vcpus": -1}, "min_vcpus", "greater than or equal to 1"),
    ({"providers": ["aws"]}, "providers[0]", "configured: vultr"),
    ({"providers": ["a b"]}, "providers[0]", "letters, digits"),
    ({"regions": ["ewrr"]}, "regions[0]", "did you mean ewr"),
    ({"plans": ["vcg-a100"]}, "plans[0]", "did you mean vcg-a100-12c"),
    ({"plan_kinds": ["container"]}, "plan_kinds[0]", "'vm' or 'bare_metal'"),
    ({"spot": "maybe"}, "spot", "'on-demand', 'spot' or 'any'"),
    ({"max_price_per_hour_usd": 0}, "max_price_per_hour_usd", "greater than 0"),
    ({"max_price_per_hour_usd": "1e400000000"}, "max_price_per_hour_usd", "less than or equal to 1000000"),
    ({"max_price_per_hour_usd": "cheap"}, "max_price_per_hour_usd", "decimal"),
    ({"gpu": ["A100"], "max_price_per_hour_usd": 1}, "max_price_per_hour_usd", "the cheapest costs $2.397"),
    ({"gpu": ["H100"]}, "gpu_count", "there are 8"),
    ({"gpu": ["A16"], "min_gpu_memory_gib": 40}, "min_gpu_memory_gib", "without this limit 1 offers match"),
    ({"gpu": ["A100"], "spot": "spot"}, "spot", "without this limit"),
    ({"private_network": "yes"}, "private_network", "'none', 'preferred' or 'required'"),
    ({"providers": ["vastai"], "private_network": "required"}, "private_network", "contradicts providers"),
    ({"ssh_keys": [f"-----BEGIN {SECRET}"]}, "ssh_keys[0]", "OpenSSH public key"),
    ({"image": "ubuntu", "gpu": ["A100"]}, "image", "os:<number>"),
    ({"image": ""}, "image", "at least 1 character"),
    ({"labels": {"team": 3}}, "labels.team", "string"),
    ({"labels": {"a b": "c"}}, "labels.a b", "label names"),
    ({"labels": {str(n): "" for n in range(21)}}, "labels", "at most 20"),
    ({"max_duration_seconds": 59}, "max_duration_seconds", "greater than or equal to 60"),
    ({"max_attempts": 51}, "max_attempts", "less than or equal to 50"),
    ({"name": ""}, "name", "at least 1 character"),
    ({"name": "n" * 64}, "name", "at most 63 characters"),
    ({"name": "-x"}, "name", "beginning with a letter or digit"),
    ({"start_script": SECRET + "x" * MAX_START_SCRIPT_BYTES}, "start_script", "at most 32768"),
    ({"start_script": [SECRET]}, "start_script", "string"),
    ({"start_script_base64": f"{SECRET}*"}, "start_script_base64", "base64"),
    ({"start_script": SECRET, "start_script_base64": "eA=="}, "start_script", "not both"),
    ({"startScript": SECRET}, "startScript", "did you mean start_script"),
    ({"epoch": 7}, "epoch", "unknown field"),
]


@pytest.mark.parametrize(("body", "field", "says"), FIELDS, ids=[f"{n}-{f[1]}" for n, f in enumerate(FIELDS)])
def test_a_wrong_field_is_named_and_nothing_is_created(
    world: World, client: Client, body: dict[str, Any], field: str, says: str
) -> None:
    answer = client.post(body)

    details = problem(answer, 422)
    assert field in [error["field"] for error in details["errors"]], answer.text
    assert any(says in error["message"] for error in details["errors"] if error["field"] == field), answer.text
    assert SECRET not in answer.text
    assert world.ledger.leases_of(None).items == () and world.workflows.started == []


def test_a_wrong_value_is_repeated_but_not_at_length(client: Client) -> None:
    short = problem(client.post({"gpu_count": 99}), 422)["errors"][0]
    long = problem(client.post({"name": "x" * 5000}), 422)["errors"][0]

    assert short["value"] == 99
    assert len(long["value"]) == 101


def test_all_wrong_fields_are_told_at_once(client: Client) -> None:
    details = problem(client.post({"gpu_count": 0, "spot": "x", "name": ""}), 422)

    assert [error["field"] for error in details["errors"]] == ["gpu_count", "spot", "name"]


def test_two_limits_that_exclude_together_are_explained(client: Client) -> None:
    details = problem(client.post({"gpu": ["A16"], "min_vcpus": 99, "min_memory_gib": 9999}), 422)

    assert details["code"] == "no_matching_offer"
    assert [error["field"] for error in details["errors"]] == ["min_vcpus"]


BODIES: list[tuple[str | bytes | None, dict[str, str], int, str]] = [
    (None, {}, 400, "the body is empty"),
    ("", {}, 400, "the body is empty"),
    ("{", {}, 400, "line 1, column 2"),
    ("[]", {}, 400, "JSON object"),
    ('[{"gpu": ["A100"]}]', {}, 400, "JSON object"),
    ("null", {}, 400, "JSON object"),
    ('"x"', {}, 400, "JSON object"),
    ('{"gpu_count": NaN}', {}, 400, "NaN"),
    ('{"min_memory_gib": -Infinity}', {}, 400, "-Infinity"),
    ('{"min_memory_gib": 1e999}', {}, 400, "too big"),
    ('{"gpu_count": ' + "9" * 5000 + "}", {}, 400, "too long"),
    ('{"gpu_count": 1, "gpu_count": 8}', {}, 400, "twice"),
    ('{"labels":' * 50_000, {}, 413, "262144"),
    ('{"x":' * 20_000, {}, 400, "nested too deeply"),
    ("[" * 100_000, {}, 400, "nested too deeply"),
    (b'{"name": "\xff\xfe"}', {}, 400, "UTF-8"),
    (b"\x00", {}, 400, "not JSON"),
    ('{"name": "' + "x" * 300_000 + '"}', {}, 413, "262144"),
    ("gpu=A100", {"content-type": "application/x-www-form-urlencoded"}, 415, "application/json"),
    ("{}", {"content-type": "text/plain"}, 415, "application/json"),
    ("{}", {"content-type": ""}, 415, "application/json"),
    ("{}", {"content-type": "application/jsonx"}, 415, "application/json"),
    ("--x", {"content-type": "multipart/form-data; boundary=x"}, 415, "application/json"),
]


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"), BODIES, ids=[f"{n}-{b[2]}" for n, b in enumerate(BODIES)]
)
def test_a_body_that_cannot_be_read_in_one_way_only_is_refused(
    world: World, client: Client, body: str | bytes | None, headers: dict[str, str], status: int, says: str
) -> None:
    answer = client("POST", "/v1/leases", body, headers=headers)

    assert says in problem(answer, status)["detail"]
    assert world.ledger.leases_of(None).items == ()


def test_broken_base64_of_the_gateway_is_a_bad_request(client: Client) -> None:
    from tests.support.api_events import api_event

    event = {**api_event("POST", "/v1/leases", b"{}"), "body": "*"}

    assert client.app.resolve(event, None)["statusCode"] == 400


def test_a_deep_but_readable_body_is_refused_by_its_fields(client: Client) -> None:
    details = problem(client.post('{"labels": {"a": ' + "[" * 400 + "]" * 400 + "}}"), 422)

    assert details["errors"][0]["field"] == "labels.a"


def test_a_lone_surrogate_is_refused(client: Client) -> None:
    details = problem(client.post('{"name": "\\ud800"}'), 422)

    assert details["errors"][0]["field"] == "name"


def test_an_answer_repeats_a_lone_surrogate_in_a_form_that_every_reader_takes(client: Client) -> None:
    answer = client.post('{"name": "\\ud800"}')

    assert answer.status == 422
    assert "\\ud" not in answer.text
    assert ProblemDetails.model_validate_json(answer.text).errors[0].value == "?"


def test_charset_and_base64_do_not_matter(client: Client) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}

    assert client.post({"gpu": ["A100"], "name": "x"}, headers=headers, as_base64=True).status == 202


QUERIES = [
    ("POST", "/v1/leases", "dry_run=perhaps", "dry_run"),
    ("POST", "/v1/leases", "dryrun=true", "dryrun"),
    ("GET", "/v1/leases", "limit=0", "limit"),
    ("GET", "/v1/leases", "limit=201", "limit"),
    ("GET", "/v1/leases", "limit=ten", "limit"),
    ("GET", "/v1/leases", "limit=1&limit=2", "limit"),
    ("GET", "/v1/leases", "state=running,asleep", "state"),
    ("GET", "/v1/leases", "states=running", "states"),
    ("GET", "/v1/leases", "name=" + "n" * 64, "name"),
    ("GET", "/v1/leases", "all=maybe", "all"),
    ("GET", "/v1/leases/l-aaaaaaaaaaaa", "verbose=1", "verbose"),
    ("GET", "/v1/leases/l-aaaaaaaaaaaa/events", "limit=-1", "limit"),
    ("DELETE", "/v1/leases/l-aaaaaaaaaaaa", "force=true", "force"),
    ("GET", "/v1/offers", "limit=1001", "limit"),
    ("GET", "/v1/offers", "gpu_count=many", "gpu_count"),
    ("GET", "/v1/offers", "gpu=A100,B300", "gpu[1]"),
    ("GET", "/v1/offers", "spot=x", "spot"),
    ("GET", "/v1/offers", "max_price_per_hour_usd=x", "max_price_per_hour_usd"),
    ("GET", "/v1/offers", "min_memory_gib=nan", "min_memory_gib"),
    ("GET", "/v1/offers", "region=ewr", "region"),
    ("GET", "/v1/offers", "regions=nowhere", "regions[0]"),
    ("GET", "/v1/health", "x=1", "x"),
]


@pytest.mark.parametrize(("method", "path", "query", "field"), QUERIES)
def test_a_wrong_query_parameter_is_named(client: Client, method: str, path: str, query: str, field: str) -> None:
    answer = client(method, path, {"gpu": ["A100"]} if method == "POST" else None, query=query)

    assert [error["field"] for error in problem(answer, 422)["errors"]] == [field]


@pytest.mark.parametrize("key", ["", " ", "a b", "ключ", "x" * 256, "a\tb"])
def test_an_idempotency_key_of_the_wrong_form_is_refused(world: World, client: Client, key: str) -> None:
    details = problem(client.post({"gpu": ["A100"]}, headers={"Idempotency-Key": key}), 422)

    assert details["errors"][0]["field"] == "Idempotency-Key"
    assert world.ledger.leases_of(None).items == ()


@pytest.mark.parametrize("key", ["a", "a,b", ",", "x" * 255, "~!@#$%^&*()"])
def test_an_idempotency_key_may_hold_any_visible_character(client: Client, key: str) -> None:
    assert client.post({"gpu": ["A100"]}, headers={"Idempotency-Key": key}).status == 202


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/leases/", "/v2/leases", "/v1/leases/l-aaaaaaaaaaaa/x", "/v1/leases/a/b/c"]
)
def test_an_unknown_route_is_not_found(client: Client, path: str) -> None:
    assert problem(client.get(path), 404)["code"] == "no_such_route"


@pytest.mark.parametrize("name", ["x", "l-", "l-AAAAAAAAAAAA", "l-0189aaaaaaaa", "l-" + "a" * 3000, "..", "%2e%2e"])
def test_an_id_of_the_wrong_form_is_not_found_without_asking_the_ledger(
    world: World, client: Client, name: str
) -> None:
    world.ledger = None

    assert client.get(f"/v1/leases/{name}").status == 404


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/v1/leases", "GET, POST"),
        ("DELETE", "/v1/leases", "GET, POST"),
        ("POST", "/v1/leases/l-aaaaaaaaaaaa", "DELETE, GET, PATCH"),
        ("PUT", "/v1/leases/l-aaaaaaaaaaaa", "DELETE, GET, PATCH"),
        ("POST", "/v1/offers", "GET"),
        ("HEAD", "/v1/health", "GET"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(client: Client, method: str, path: str, allow: str) -> None:
    answer = client(method, path)

    assert problem(answer, 405) and answer.headers["allow"] == allow


@pytest.mark.parametrize(
    "authorizer",
    [
        None,
        {},
        {"iam": None},
        {"iam": {"userArn": ""}},
        {"jwt": {"claims": {"sub": 7}}},
        {"lambda": {"principal": "x"}},
    ],
)
def test_nobody_gets_in_whatever_else_is_wrong(world: World, authorizer: dict[str, Any] | None) -> None:
    client = world.client(owner=None)
    how: dict[str, Any] = {} if authorizer is None else {"authorizer": authorizer}

    for method, path in (("GET", "/v1/leases"), ("GET", "/v1/offers"), ("DELETE", "/v1/leases/l-aaaaaaaaaaaa")):
        assert problem(client(method, path, **how), 401)["code"] == "not_authenticated"
    assert problem(client.post("{", **how), 401)
    assert client.get("/v1/health", **how).status == 200


@pytest.mark.parametrize(
    ("authorizer", "owner"),
    [
        ({"iam": {"userArn": "arn:aws:iam::1:user/x"}}, "arn:aws:iam::1:user/x"),
        ({"jwt": {"claims": {"sub": "sub-1"}, "scopes": []}}, "sub-1"),
        ({"lambda": {"principalId": "local"}}, "local"),
    ],
)
def test_the_owner_is_who_the_authorizer_says(world: World, authorizer: dict[str, Any], owner: str) -> None:
    answer = world.client(owner=None).post({"gpu": ["A100"]}, authorizer=authorizer)

    assert answer.json["owner"] == owner


def test_an_empty_catalogue_asks_to_retry(world: World, client: Client) -> None:
    world.offers.snapshots = []

    for answer in (client.post({}), client.post({}, query="dry_run=1"), client.get("/v1/offers")):
        assert "not loaded yet" in problem(answer, 503)["detail"]
        assert answer.headers["retry-after"] == "60"


def test_a_deployment_without_providers_says_so(world: World, client: Client) -> None:
    world.providers.names = ()

    assert problem(client.post({}), 503)["code"] == "no_provider_configured"


def test_an_unexpected_error_shows_its_request_id_and_nothing_else(world: World, client: Client) -> None:
    class Broken:
        def load(self, lease_id: str) -> Any:
            raise RuntimeError(f"{SECRET} in /srv/app.py")

    world.ledger = Broken()

    answer = client.get("/v1/leases/l-aaaaaaaaaaaa", request_id="r-77")

    details = problem(answer, 500)
    assert details["request_id"] == "r-77" and SECRET not in answer.text and "app.py" not in answer.text
    ((level, event, facts),) = world.log.lines
    assert (level, event) == ("error", "request_failed")
    assert facts["request_id"] == "r-77" and facts["error"] == "RuntimeError" and SECRET not in json.dumps(facts)


def test_a_part_that_cannot_be_made_is_an_error_like_any_other(world: World) -> None:
    class Unmakeable:
        policy = world.policy
        log = world.log

        def __getattr__(self, name: str) -> Any:
            raise ImportError(name)

    from gpulease.api.app import create_app

    assert problem(Client(create_app(Unmakeable())).get("/v1/leases"), 500)


def test_a_ledger_that_does_not_answer_is_503(world: World, client: Client) -> None:
    class Silent:
        def load(self, lease_id: str) -> Any:
            raise LedgerUnavailable("timeout")

    world.ledger = Silent()

    answer = client.get("/v1/leases/l-aaaaaaaaaaaa")

    assert problem(answer, 503)["code"] == "ledger_unavailable" and answer.headers["retry-after"]
