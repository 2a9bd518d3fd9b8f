"""What no stand-in for AWS checks in `template.yaml`: read and compared with the code."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gpulease.ledger.keys import RUNTIME_TTL
from gpulease.runtime.settings import PREFIX, Settings
from gpulease.steps import alarms
from gpulease_local.failed_executions import HIDDEN_SECONDS

from tests.support import template_policies
from tests.support.template_policies import FUNCTION, listed, resources, statements

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = template_policies.read(ROOT)
FUNCTIONS = resources(DOCUMENT, FUNCTION)
MACHINES = resources(DOCUMENT, "AWS::Serverless::StateMachine")
DEFAULTS = DOCUMENT["Globals"]["Function"]
WITHOUT_RESOURCES = {"logs"}
"""Services of which some actions know no resource, so that only `*` is possible."""
ABOUT_US = {"AlarmNotSent", "LeasesUnchecked", "Undelivered"}
"""What no function can tell of itself, so that CloudWatch alone does; all others the functions send as well."""


def test_every_setting_is_given_by_the_template_or_has_a_default() -> None:
    given = set(DEFAULTS["Environment"]["Variables"])
    needed = {PREFIX + name.upper() for name, field in Settings.model_fields.items() if field.is_required()}

    assert needed <= given


def test_every_variable_of_ours_in_the_template_is_a_setting() -> None:
    variables = [each.get("Environment", {}).get("Variables", {}) for each in (DEFAULTS, *FUNCTIONS.values())]
    given = {name for each in variables for name in each if name.startswith(PREFIX)}

    assert given <= {PREFIX + name.upper() for name in Settings.model_fields}


@pytest.mark.parametrize("name", [*FUNCTIONS, *MACHINES])
def test_no_policy_has_a_wildcard_action_or_a_needless_wildcard_resource(name: str) -> None:
    for each in statements(FUNCTIONS.get(name) or MACHINES[name]):
        actions = listed(each["Action"])

        assert not [action for action in actions if "*" in action]
        assert "*" not in listed(each["Resource"]) or {a.partition(":")[0] for a in actions} <= WITHOUT_RESOURCES


@pytest.mark.parametrize(
    ("name", "machine"), [("SelectOfferFunction", "provision"), ("NextToReleaseFunction", "release")]
)
def test_a_long_workflow_may_be_handed_over_to_a_new_execution(name: str, machine: str) -> None:
    assert ("states:StartExecution", machine) in template_policies.allowed(FUNCTIONS[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_logs_where_logs_end_some_day(name: str) -> None:
    logging = FUNCTIONS[name].get("LoggingConfig", DEFAULTS["LoggingConfig"])
    group = DOCUMENT["Resources"][logging["LogGroup"]["Ref"]]

    assert group["Type"] == "AWS::Logs::LogGroup"


def test_every_log_group_has_a_retention() -> None:
    groups = resources(DOCUMENT, "AWS::Logs::LogGroup")

    assert groups
    assert [name for name, each in groups.items() if "RetentionInDays" not in each] == []


@pytest.mark.parametrize("name", MACHINES)
def test_every_state_machine_logs_and_traces(name: str) -> None:
    (target,) = MACHINES[name]["Logging"]["Destinations"]

    assert target["CloudWatchLogsLogGroup"]["LogGroupArn"] == {"GetAtt": "WorkflowLogs.Arn"}
    assert MACHINES[name]["Tracing"]["Enabled"] == {"If": ["Traces", True, False]}
    assert DOCUMENT["Conditions"]["Traces"] == {"Equals": [{"Ref": "Tracing"}, "Active"]}
    assert DEFAULTS["Tracing"] == {"Ref": "Tracing"}


@pytest.mark.parametrize("name", [name for name, each in FUNCTIONS.items() if "Events" in each])
def test_every_schedule_can_be_read_is_tried_again_and_leaves_a_trace(name: str) -> None:
    for event in FUNCTIONS[name]["Events"].values():
        schedule = event["Properties"]
        rate = re.fullmatch(r"rate\((\d+) (minute|hour|day)(s?)\)", schedule["ScheduleExpression"])

        assert rate is not None
        assert int(rate[1]) > 0
        assert (rate[1] == "1") == (rate[3] == "")  # the service refuses "1 minutes" and "5 minute"
        assert schedule["RetryPolicy"]["MaximumRetryAttempts"] > 0
        assert schedule["DeadLetterConfig"] == {"Arn": {"GetAtt": "UndeliveredQueue.Arn"}}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_built_by_the_makefile_of_its_folder(name: str) -> None:
    makefile = ROOT / FUNCTIONS[name]["CodeUri"] / "Makefile"
    targets = re.findall(r"^(build-\S+):", makefile.read_text(encoding="utf-8"), re.MULTILINE)

    assert DOCUMENT["Resources"][name]["Metadata"] == {"BuildMethod": "makefile"}
    assert targets in (["build-%"], [f"build-{name}"])


def test_the_table_that_expires_does_so_by_the_attribute_that_the_code_writes() -> None:
    specified = resources(DOCUMENT, "AWS::DynamoDB::Table")["RuntimeTable"]["TimeToLiveSpecification"]

    assert specified == {"AttributeName": RUNTIME_TTL, "Enabled": True}


def _runbook() -> set[str]:
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    return set(re.findall(r"^## ([A-Z]\w+)$", text, re.MULTILINE))


def test_the_runbook_and_the_template_have_the_same_alarms() -> None:
    watching = resources(DOCUMENT, "AWS::CloudWatch::Alarm")

    assert {name.removesuffix("Alarm") for name in watching} == _runbook()
    assert all(DOCUMENT["Resources"][name]["Condition"] == "WatchesWithCloudWatch" for name in watching)


def test_each_alarm_that_functions_send_is_counted_from_the_log_and_watched() -> None:
    filters = resources(DOCUMENT, "AWS::Logs::MetricFilter").values()
    counted = {
        found[1]: each["MetricTransformations"][0]["MetricName"]
        for each in filters
        if (found := re.search(r'\$\.alarm = "(\w+)"', each["FilterPattern"]))
    }
    watched = {each["MetricName"] for each in resources(DOCUMENT, "AWS::CloudWatch::Alarm").values()}

    assert counted == {name: name for name in _runbook() - ABOUT_US}
    assert watched >= set(counted)


def test_every_alarm_that_code_sends_is_in_the_runbook() -> None:
    sent = {value for name, value in vars(alarms).items() if name.isupper() and isinstance(value, str)}

    assert {"ReleaseStuck", "UnownedResourceFound"} <= sent
    assert {name for name in sent if name[0].isupper()} <= _runbook()


def _dashboard() -> tuple[list[dict[str, Any]], set[str]]:
    """The widgets, and what the text refers to."""
    text, names = DOCUMENT["Resources"]["OverviewDashboard"]["Properties"]["DashboardBody"]["Sub"]
    used = {each.partition(".")[0] for each in re.findall(r"\$\{([\w:.]+)\}", text)}
    return json.loads(re.sub(r"\$\{([\w:.]+)\}", r"<\1>", text))["widgets"], used - set(names)


def test_the_dashboard_shows_what_somebody_wants_to_know() -> None:
    widgets, used = _dashboard()
    shown = {text for each in widgets for metric in each["properties"]["metrics"] for text in map(str, metric)}
    counted = {
        f["MetricTransformations"][0]["MetricName"] for f in resources(DOCUMENT, "AWS::Logs::MetricFilter").values()
    }

    assert {name for name in used if "::" not in name} <= set(DOCUMENT["Resources"])
    assert set(MACHINES) <= used
    assert {"BilledMachines", "BilledUsdPerHour", "ReleaseStuck", "UnownedResourceFound"} <= shown & counted
    assert {"ExecutionsFailed", "ExecutionsTimedOut", "ExecutionsAborted", "4xx", "5xx"} <= shown
    assert {"<FailedExecutionsQueue.QueueName>", "<UndeliveredQueue.QueueName>"} <= shown
    assert all(any(f'MetricName="{name}"' in text for text in shown) for name in ("Errors", "Duration"))


def test_the_dashboard_has_no_widget_over_another() -> None:
    places = [(each["x"], each["y"], each["width"], each["height"]) for each in _dashboard()[0]]
    cells = [(x + i, y + j) for x, y, width, height in places for i in range(width) for j in range(height)]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_every_state_machine_tells_of_executions_that_failed() -> None:
    rule = DOCUMENT["Resources"]["FailedExecutionsRule"]["Properties"]
    detail = rule["EventPattern"]["detail"]
    (target,) = rule["Targets"]

    assert {each["Ref"] for each in detail["stateMachineArn"]} == set(MACHINES)
    assert set(detail["status"]) == {"FAILED", "TIMED_OUT", "ABORTED"}
    assert target["Arn"] == {"GetAtt": "FailedExecutionsQueue.Arn"}


def test_c77_a_message_is_hidden_for_six_times_as_long_as_its_reader_may_run() -> None:
    queue = DOCUMENT["Resources"]["FailedExecutionsQueue"]["Properties"]

    assert queue["VisibilityTimeout"] >= 6 * FUNCTIONS["CheckLeasesFunction"]["Timeout"]
    assert queue["VisibilityTimeout"] == HIDDEN_SECONDS, "on one computer as in AWS"
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {"GetAtt": "UndeliveredQueue.Arn"}
    assert queue["RedrivePolicy"]["maxReceiveCount"] * queue["VisibilityTimeout"] < queue["MessageRetentionPeriod"]


def test_nobody_calls_the_api_unauthorised_whichever_authorizer_is_chosen() -> None:
    routes = resources(DOCUMENT, "AWS::ApiGatewayV2::Route")
    authorizer = DOCUMENT["Resources"]["JwtAuthorizer"]

    for route in (each for each in routes.values() if each["RouteKey"] == "ANY /{proxy+}"):
        assert route["AuthorizationType"] == {"If": ["UsesJwt", "JWT", "AWS_IAM"]}
        assert route["AuthorizerId"] == {"If": ["UsesJwt", {"Ref": "JwtAuthorizer"}, {"Ref": "AWS::NoValue"}]}
    assert authorizer["Condition"] == "UsesJwt"
    assert authorizer["Properties"]["JwtConfiguration"] == {
        "Issuer": {"Ref": "JwtIssuer"},
        "Audience": {"Ref": "JwtAudience"},
    }
    assert DOCUMENT["Conditions"]["UsesJwt"] == {"Not": [{"Equals": [{"Ref": "JwtIssuer"}, ""]}]}
    assert DOCUMENT["Parameters"]["JwtIssuer"]["Default"] == ""


def test_nothing_names_an_account_or_a_region() -> None:
    text = (ROOT / "template.yaml").read_text(encoding="utf-8")

    assert re.findall(r"\b\d{12}\b", text) == []
    assert re.findall(r"\b(?:us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-\d\b", text) == []


def test_the_layer_is_pinned_to_what_the_tests_run_with() -> None:
    shipped, tested = (_pins(ROOT / path) for path in ("layers/deps/requirements.txt", "requirements/dev.txt"))

    assert shipped
    assert shipped.items() <= tested.items()


def test_the_heavy_catalogue_is_in_one_function_only() -> None:
    assert "gpuhunt" not in _pins(ROOT / "layers/deps/requirements.txt")
    assert [path.parent.name for path in (ROOT / "functions").glob("*/requirements.txt")] == ["refresh_offers"]


def test_the_documentation_has_the_permissions_of_the_template() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    shown = text.partition(template_policies.TABLE_BEGIN)[2].partition(template_policies.TABLE_END)[0].strip()

    assert shown == template_policies.iam_table(DOCUMENT), "run: python -m tests.support.template_policies"


def test_the_documentation_has_every_parameter() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")

    assert [name for name in DOCUMENT["Parameters"] if f"`{name}`" not in text] == []


def _pins(path: Path) -> dict[str, Any]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE))
