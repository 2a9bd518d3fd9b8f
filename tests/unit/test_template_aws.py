"""What the template allows its functions on EC2: what the adapter calls, on what is ours, and only with AwsRegions."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import template_policies
from tests.support.template_policies import FUNCTION, POLICY, aws_statements, listed, resources

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = template_policies.read(ROOT)
ADAPTER = ROOT / "layers/core/python/gpulease/providers/aws"
STATEMENTS = aws_statements(DOCUMENT)
DEPLOYMENT = DOCUMENT["Globals"]["Function"]["Environment"]["Variables"]["GPULEASE_DEPLOYMENT"]
NOT_CALLED = {
    "ec2:CreateTags": "part of the create calls",
    "iam:CreateServiceLinkedRole": "done by EC2 itself at an account's first spot machine",
}
NOT_ALLOWED = {
    "ec2:ReleaseAddress": "no workflow asks for addresses, so none gives them back",
    "sts:GetCallerIdentity": "needs no permission",
}
ON_WHAT_OTHERS_OWN = {"LaunchFromAndInto", "MakeTheGroupInAVpc", "JoinGroups"}
"""Images, subnets, VPCs and given groups have no tag of ours; each is only used together with something that has."""


def _called() -> set[str]:
    """IAM's names of all operations that the adapter names."""
    operations = set()
    for file in ADAPTER.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        operations |= set(re.findall(r'"([a-z]+(?:_[a-z0-9]+)+)",', text)) | set(re.findall(r"\.(assume_role)\(", text))
    services = {"get_caller_identity": "sts", "assume_role": "sts", "get_parameter": "ssm"}
    verbs = re.compile(
        "(describe|run|create|delete|attach|detach|modify|start|stop|terminate|cancel|release|authorize)_.*"
    )
    return {
        f"{services.get(name, 'ec2')}:{''.join(part.capitalize() for part in name.split('_'))}"
        for name in operations
        if name in services or verbs.fullmatch(name)
    }


def _changes(action: str) -> bool:
    return action.startswith("ec2:") and not action.startswith("ec2:Describe")


def test_functions_may_do_on_aws_what_the_adapter_does_and_no_more() -> None:
    allowed = {action for _, each in STATEMENTS for action in listed(each["Action"])}

    assert {"ec2:RunInstances", "ec2:TerminateInstances", "ssm:GetParameter", "sts:AssumeRole"} <= _called()
    assert allowed - _called() == set(NOT_CALLED)
    assert _called() - allowed == set(NOT_ALLOWED)


def test_nothing_on_aws_is_allowed_where_no_regions_are_given() -> None:
    policies = [each for each in DOCUMENT["Resources"].values() if each["Type"] == POLICY]

    assert policies
    assert {each["Condition"] for each in policies} == {"RentsFromAws"}
    assert DOCUMENT["Conditions"]["RentsFromAws"] == {"Not": [{"Equals": [{"Ref": "AwsRegions"}, ""]}]}


@pytest.mark.parametrize(("functions", "statement"), STATEMENTS, ids=lambda value: str(value)[:40])
def test_changes_are_limited_to_what_carries_the_tag_of_this_deployment(
    functions: tuple[str, ...], statement: dict[str, Any]
) -> None:
    changes = [action for action in listed(statement["Action"]) if _changes(action)]
    condition = statement.get("Condition", {}).get("StringEquals", {})

    assert not [action for action in listed(statement["Action"]) if "*" in action]
    if not changes or statement["Sid"] in ON_WHAT_OTHERS_OWN:
        return
    assert "*" not in listed(statement["Resource"])
    if changes == ["ec2:CreateTags"]:
        assert list(condition) == ["ec2:CreateAction"]
        return
    assert list(condition) in (["aws:ResourceTag/gpulease-deployment"], ["aws:RequestTag/gpulease-deployment"])
    assert list(condition.values()) == [DEPLOYMENT]


def test_all_functions_that_read_provider_keys_may_look_at_machines_on_aws() -> None:
    callers = {
        name.removesuffix("Function")
        for name, properties in resources(DOCUMENT, FUNCTION).items()
        if ("secretsmanager:GetSecretValue", "secrets") in template_policies.allowed(properties)
    }
    (looking,) = ({*functions} for functions, each in STATEMENTS if "ec2:DescribeInstances" in listed(each["Action"]))

    assert looking == callers


def test_the_documentation_has_the_permissions_on_aws() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    shown = text.partition(template_policies.AWS_TABLE_BEGIN)[2].partition(template_policies.AWS_TABLE_END)[0].strip()

    assert shown == template_policies.aws_table(DOCUMENT), "run: python -m tests.support.template_policies"
