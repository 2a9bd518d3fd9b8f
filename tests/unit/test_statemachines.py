"""What neither the service nor the local stand-ins check before a state machine runs."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpulease.ledger.keys import RUNTIME_TABLE_SPEC, TABLE_SPEC

from tests.support.asl_rules import definitions, graph_faults, outcome_faults, task_faults

ROOT = Path(__file__).resolve().parents[2]
ALL = definitions(ROOT)


class _Tags(yaml.SafeLoader):
    """CloudFormation's short tags as {tag: value}."""


def _tag(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return {suffix: loader.construct_scalar(node)}
    if isinstance(node, yaml.SequenceNode):
        return {suffix: loader.construct_sequence(node, deep=True)}
    assert isinstance(node, yaml.MappingNode)
    return {suffix: loader.construct_mapping(node, deep=True)}


_Tags.add_multi_constructor("!", _tag)
RESOURCES: dict[str, Any] = yaml.load((ROOT / "template.yaml").read_text(), _Tags)["Resources"]  # noqa: S506 - a SafeLoader


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_there_are_state_machines() -> None:
    assert {"provision", "release"} <= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_every_target_exists_every_state_is_reached_and_leads_to_an_end(name: str) -> None:
    assert graph_faults(ALL[name]) == []


@pytest.mark.parametrize("name", ALL)
def test_every_task_has_timeout_retry_and_catch_by_known_names(name: str) -> None:
    assert task_faults(ALL[name]) == []


@pytest.mark.parametrize("name", ALL)
def test_every_outcome_of_a_step_has_its_branch_and_no_branch_is_dead(name: str) -> None:
    assert outcome_faults(ALL[name], snake) == []


@pytest.mark.parametrize("name", ALL)
def test_placeholders_are_the_template_substitutions_and_the_role_may_invoke_each(name: str) -> None:
    machine = RESOURCES[f"{name.title()}StateMachine"]["Properties"]
    used = set(re.findall(r"\$\{(\w+)\}", (ROOT / machine["DefinitionUri"]).read_text()))

    statement = machine["Policies"][0]["Statement"][0]
    allowed = {target["GetAtt"].removesuffix(".Arn") for target in statement["Resource"]}
    substituted = {
        key: value["GetAtt"].removesuffix(".Arn") for key, value in machine["DefinitionSubstitutions"].items()
    }

    assert set(substituted) == used
    assert set(substituted.values()) == allowed
    assert allowed <= set(RESOURCES)


@pytest.mark.parametrize("name", ALL)
def test_a_task_waits_longer_than_its_function_may_run(name: str) -> None:
    for state_name, state in ALL[name]["States"].items():
        if state["Type"] == "Task":
            function = RESOURCES[f"{state_name}Function"]["Properties"]
            assert state["TimeoutSeconds"] > function["Timeout"], state_name


def test_the_tables_of_the_template_are_those_the_code_expects() -> None:
    for resource, spec in (("LedgerTable", TABLE_SPEC), ("RuntimeTable", RUNTIME_TABLE_SPEC)):
        properties = RESOURCES[resource]["Properties"]

        assert {key: properties[key] for key in spec} == spec


def _statements(function: str) -> list[dict[str, Any]]:
    return [s for policy in RESOURCES[function]["Properties"].get("Policies", []) for s in policy["Statement"]]


def test_a_function_that_may_read_provider_keys_may_use_what_workers_share() -> None:
    callers = [
        name
        for name, resource in RESOURCES.items()
        if resource["Type"] == "AWS::Serverless::Function"
        and any(
            s["Action"] == "secretsmanager:GetSecretValue" and s.get("Sid") != "CacheKeys" for s in _statements(name)
        )
    ]

    for name in callers:
        runtime = [s for s in _statements(name) if s["Resource"] == {"GetAtt": "RuntimeTable.Arn"}]
        actions = {action for s in runtime for action in s["Action"]}
        assert {"dynamodb:BatchGetItem", "dynamodb:UpdateItem"} <= actions, name
    assert len(callers) >= 10


def test_the_ledger_table_outlives_its_stack_and_has_no_expiry() -> None:
    table = RESOURCES["LedgerTable"]

    assert table["DeletionPolicy"] == table["UpdateReplacePolicy"] == "Retain"
    assert table["Properties"]["DeletionProtectionEnabled"] is True
    assert "TimeToLiveSpecification" not in table["Properties"]


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda s: s["SelectOffer"].update(Next="Nowhere"), "SelectOffer → Nowhere does not exist"),
        (lambda s: s.update(Island={"Type": "Succeed"}), "Island is never reached"),
        (lambda s: s["MayTryNext"]["Choices"][1].update(Next="MayTryNext"), "GiveUp is never reached"),
    ],
)
def test_a_broken_graph_is_reported(break_it: Any, told: str) -> None:
    broken = copy.deepcopy(dict(ALL["provision"]))
    if told == "GiveUp is never reached":
        broken["States"]["HasOffer"]["Choices"][2].update(Next="Superseded")
    break_it(broken["States"])

    assert told in graph_faults(broken)


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda t: t.pop("TimeoutSeconds"), "SelectOffer has no TimeoutSeconds"),
        (lambda t: t.pop("Catch"), "SelectOffer has no Catch"),
        (
            lambda t: t["Retry"][0]["ErrorEquals"].append("ProviderSulks"),
            "SelectOffer: no error is called ProviderSulks",
        ),
    ],
)
def test_a_broken_task_is_reported(break_it: Any, told: str) -> None:
    broken = copy.deepcopy(dict(ALL["provision"]))
    break_it(broken["States"]["SelectOffer"])

    assert told in task_faults(broken)


def test_an_outcome_without_a_branch_is_reported() -> None:
    broken = copy.deepcopy(dict(ALL["provision"]))
    branches = broken["States"]["IsReady"]["Choices"]
    broken["States"]["IsReady"]["Choices"] = [b for b in branches if b["StringEquals"] != "failed"]

    assert outcome_faults(broken, snake) == ["PollReadiness: outcome failed has no branch in IsReady"]
