"""What `template.yaml` allows its functions: (action, resource) by function, in the words of `recorded_calls`."""

import re
from pathlib import Path
from typing import Any

import yaml

FUNCTION = "AWS::Serverless::Function"


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


def read(root: Path) -> dict[str, Any]:
    """The template's document, tags as {tag: value}."""
    document: dict[str, Any] = yaml.load((root / "template.yaml").read_text(encoding="utf-8"), _Tags)  # noqa: S506 - a SafeLoader
    return document


def resources(document: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Logical id to properties, of one type."""
    return {name: each.get("Properties", {}) for name, each in document["Resources"].items() if each["Type"] == kind}


def statements(properties: dict[str, Any]) -> list[dict[str, Any]]:
    """The statements of a function's or state machine's own policies."""
    return [each for policy in properties.get("Policies", ()) for each in policy["Statement"]]


def listed(value: Any) -> list[Any]:
    """A thing or a list of things as a list."""
    return value if isinstance(value, list) else [value]


def allowed(properties: dict[str, Any]) -> set[tuple[str, str]]:
    """(action, resource) that the function may use."""
    return {
        (action, resource)
        for each in statements(properties)
        for action in listed(each["Action"])
        for named in listed(each["Resource"])
        for resource in _resources_of(action, named)
    }


def _resources_of(action: str, named: Any) -> list[str]:
    text = next(iter(named.values())) if isinstance(named, dict) else str(named)
    if found := re.fullmatch(r"(?:\$\{)?(\w+Table)\.Arn\}?(/index/[\w*]+)?", text):
        return [found[1] + ("/index" if found[2] else "")]
    if found := re.fullmatch(r"(\w+Queue)\.Arn", text):
        return [found[1]]
    if re.search(r":secret:gpulease/\$\{AWS::StackName\}/\*$", text):
        return ["secrets"]
    if text.endswith(":secret:gpulease/${AWS::StackName}/cache/*"):
        return ["secrets of caches"]
    if found := re.search(r":(stateMachine|execution):\$\{AWS::StackName\}-([\w*:]+)$", text):
        # What an action is about decides which of the two kinds of names it can use at all.
        if (found[1] == "execution") != (action == "states:DescribeExecution"):
            return []
        machine = found[2].removesuffix(":*")
        return ["provision", "pause", "resume", "release", "cache"] if machine == "*" else [machine]
    return [text]


TABLE_BEGIN, TABLE_END = "<!-- iam table: begin -->", "<!-- iam table: end -->"


def iam_table(document: dict[str, Any]) -> str:
    """What each function may do, as a table in Markdown."""
    lines = ["| function | may | on |", "|---|---|---|"]
    for name, properties in resources(document, FUNCTION).items():
        by_resource: dict[str, list[str]] = {}
        for action, resource in sorted(allowed(properties)):
            by_resource.setdefault(_RESOURCE_NAMES.get(resource, resource), []).append(action)
        for resource, actions in by_resource.items():
            lines.append(f"| {name.removesuffix('Function')} | {', '.join(actions)} | {resource} |")
    return "\n".join(lines)


POLICY = "AWS::IAM::Policy"
AWS_TABLE_BEGIN, AWS_TABLE_END = "<!-- aws table: begin -->", "<!-- aws table: end -->"


def aws_statements(document: dict[str, Any]) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """Statements of the policies for machines on AWS, each with the functions that it holds for."""
    return [
        (tuple(role["Ref"].removesuffix("FunctionRole") for role in properties["Roles"]), each)
        for properties in resources(document, POLICY).values()
        for each in properties["PolicyDocument"]["Statement"]
    ]


def aws_table(document: dict[str, Any]) -> str:
    """What functions may do with machines on AWS, as a table in Markdown."""
    lines = ["| functions | may | on | if |", "|---|---|---|---|"]
    everybody = max((functions for functions, _ in aws_statements(document)), key=len)
    for functions, each in aws_statements(document):
        who = "all that call providers" if functions == everybody else ", ".join(functions)
        where = ", ".join(_kind_of(resource) for resource in listed(each["Resource"]))
        lines.append(f"| {who} | {', '.join(listed(each['Action']))} | {where} | {_condition_of(each)} |")
    return "\n".join(lines)


def _kind_of(resource: Any) -> str:
    text = str(next(iter(resource.values())) if isinstance(resource, dict) else resource)
    return "everything" if text == "*" else f"`{text.rpartition(':')[2]}`"


def _condition_of(statement: dict[str, Any]) -> str:
    conditions = statement.get("Condition", {}).get("StringEquals", {})
    return ", ".join(
        f"`{key}` is {'this deployment' if isinstance(value, dict) else ' or '.join(listed(value))}"
        for key, value in conditions.items()
    )


def write_table(root: Path) -> None:
    """Put the tables into the documentation anew."""
    file = root / "docs" / "security.md"
    text = file.read_text(encoding="utf-8")
    document = read(root)
    for begin, end, table in (
        (TABLE_BEGIN, TABLE_END, iam_table(document)),
        (AWS_TABLE_BEGIN, AWS_TABLE_END, aws_table(document)),
    ):
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    file.write_text(text, encoding="utf-8")


_RESOURCE_NAMES = {
    "LedgerTable": "the ledger",
    "LedgerTable/index": "the ledger's indexes",
    "RuntimeTable": "the runtime table",
    "AlarmTopic": "the alarm topic",
    "FailedExecutionsQueue": "the queue of failed executions",
    "secrets": "secrets `gpulease/<stack>/*`",
    "secrets of caches": "secrets `gpulease/<stack>/cache/*`",
    "provision": "the state machine `<stack>-provision`",
    "pause": "the state machine `<stack>-pause`",
    "resume": "the state machine `<stack>-resume`",
    "release": "the state machine `<stack>-release`",
    "cache": "the state machine `<stack>-cache`",
}


if __name__ == "__main__":
    write_table(Path(__file__).resolve().parents[2])
