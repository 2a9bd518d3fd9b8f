"""The template reader: what it reads of a SAM template, and that it says where it does not understand."""

from pathlib import Path

import pytest
from gpulease_local.template import RouteSpec, ScheduleSpec, TemplateRefused, read_template

BASE = """
Parameters:
  Accounts: {Type: String, Default: vultr}
  Bare: {Type: String}
Globals:
  Function:
    Timeout: 40
    Environment: {Variables: {TABLE: !Ref Ledger, ACCOUNTS: !Ref Accounts}}
Resources:
  Ledger: {Type: AWS::DynamoDB::Table}
  StepFunction:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: functions/step/
      Handler: app.handler
      Environment: {Variables: {WHERE: !Sub "${AWS::Region}/${Ledger.Arn}"}}
  Machine:
    Type: AWS::Serverless::StateMachine
    Properties:
      DefinitionUri: statemachines/provision.asl.json
      DefinitionSubstitutions: {StepFunctionArn: !GetAtt StepFunction.Arn, Self: !Ref Machine}
"""


def _read(tmp_path: Path, text: str) -> object:
    file = tmp_path / "template.yaml"
    file.write_text(text, encoding="utf-8")
    return read_template(file)


def test_a_function_takes_what_it_does_not_say_from_globals(tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text(BASE, encoding="utf-8")

    function = read_template(tmp_path / "template.yaml").function("StepFunction")

    assert function.folder == tmp_path / "functions/step"
    assert (function.handler, function.timeout_seconds) == ("app.handler", 40.0)
    assert function.environment == {"TABLE": "Ledger", "ACCOUNTS": "vultr", "WHERE": "local/Ledger"}


def test_a_machine_is_called_as_its_file_and_its_references_are_names_of_this_computer(tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text(BASE, encoding="utf-8")

    (machine,) = read_template(tmp_path / "template.yaml").machines

    assert machine.name == "provision"
    assert machine.definition == tmp_path / "statemachines/provision.asl.json"
    assert machine.substitutions == {"StepFunctionArn": "StepFunction", "Self": "provision"}


def test_schedules_of_both_kinds_are_read_and_disabled_ones_left_out(tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text(
        BASE
        + """
  Hourly:
    Type: AWS::Scheduler::Schedule
    Properties:
      ScheduleExpression: rate(1 hour)
      Target: {Arn: !GetAtt StepFunction.Arn, Input: '{"why": "hour"}'}
  Off:
    Type: AWS::Scheduler::Schedule
    Properties:
      ScheduleExpression: rate(1 hour)
      State: DISABLED
      Target: {Arn: !GetAtt StepFunction.Arn}
  OtherFunction:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: functions/other/
      Handler: app.handler
      Events:
        EveryMinute: {Type: ScheduleV2, Properties: {ScheduleExpression: rate(5 minutes)}}
""",
        encoding="utf-8",
    )

    schedules = read_template(tmp_path / "template.yaml").schedules

    assert schedules == (
        ScheduleSpec("Hourly", "StepFunction", 3600.0, {"why": "hour"}),
        ScheduleSpec("OtherFunction.Events.EveryMinute", "OtherFunction", 300.0, {}),
    )


def test_a_route_is_followed_through_its_integration_to_the_function(tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text(
        BASE
        + """
  Route:
    Type: AWS::ApiGatewayV2::Route
    Properties: {RouteKey: "$default", Target: !Join [/, [integrations, !Ref Integration]]}
  Integration:
    Type: AWS::ApiGatewayV2::Integration
    Properties: {IntegrationUri: !GetAtt StepFunction.Arn, PayloadFormatVersion: "2.0"}
""",
        encoding="utf-8",
    )

    assert read_template(tmp_path / "template.yaml").routes == (RouteSpec("$default", "StepFunction"),)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (BASE.replace("Timeout: 40", "Timeout: !If [A, 1, 2]"), r"StepFunction.Timeout: !If is not understood"),
        (BASE.replace("!Ref Accounts", "!Ref Bare"), "parameter Bare has no Default"),
        (BASE.replace("!Ref Accounts", "!Ref Nobody"), "Nobody is neither a parameter nor a resource"),
        (BASE.replace("app.handler", "app"), "StepFunction: needs CodeUri"),
        (BASE + "  F2: {Type: AWS::Serverless::Function, Condition: Sometimes}\n", "F2.Condition"),
        (
            BASE.replace("      Handler: app.handler", "      Handler: app.handler\n      Events: {Q: {Type: SQS}}"),
            "StepFunction.Events.Q: SQS events have no source",
        ),
        (
            BASE.replace(
                "      Handler: app.handler",
                "      Handler: app.handler\n"
                "      Events: {C: {Type: ScheduleV2, Properties: {ScheduleExpression: 'cron(0 1 * * ? *)'}}}",
            ),
            r"'cron\(0 1 \* \* \? \*\)' is not understood",
        ),
        ("Resources: [", "not YAML"),
        ("Parameters: {}", "has no Resources"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(TemplateRefused, match=named):
        _read(tmp_path, text)


def test_the_template_of_this_repository_is_understood(pytestconfig: pytest.Config) -> None:
    template = read_template(pytestconfig.rootpath / "template.yaml")

    assert {machine.name for machine in template.machines} >= {"provision", "release"}
    assert {route.function for route in template.routes} == {"ApiFunction", "AgentReportFunction"}
    assert {schedule.function for schedule in template.schedules} >= {"CheckLeasesFunction", "RefreshOffersFunction"}
    assert all((function.folder / "app.py").is_file() for function in template.functions)
