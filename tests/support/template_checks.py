"""What tools not written here say of the template and of the state machines.

Each is also shown something broken: a tool that would let everything pass fails the check. Findings of checkov that are
meant to be stand in CHECKOV_EXCEPTIONS, each with its reason; one that nothing needs any more fails too.
"""

import copy
import json
import re
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.support.asl_rules import definitions
from tests.support.deployed import CommandFailed, Sam

CHECKOV_EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("CKV_AWS_28", "RuntimeTable"): "holds copies of readings that are of use for minutes; all of it is read again",
    ("CKV_AWS_119", "*Table"): "encrypted with AWS's own key, which costs nothing; a key of one's own is $1 a month",
    ("CKV_AWS_158", "*Logs"): "as the tables; logs hold no secret (docs/security.md)",
    ("CKV_AWS_26", "AlarmTopic"): "CloudWatch alarms cannot publish to a topic under the key `alias/aws/sns`",
    ("CKV_AWS_27", "*Queue"): "encrypted by SQS's own key, of which this check does not know",
    ("CKV_AWS_115", "*Function"): "reserved concurrency would take it from the account's other functions",
    (
        "CKV_AWS_116",
        "*Function",
    ): "what failed is repeated by its workflow or schedule, which sees more than a kept call",
    ("CKV_AWS_117", "*Function"): "providers are on the internet: a VPC would need a NAT gateway, at $33 a month",
    ("CKV_AWS_173", "*Function"): "variables hold names and no secret; encrypted at rest all the same",
}
"""(check, resources): why it is meant to be. https://www.checkov.io/5.Policy%20Index/cloudformation.html"""


class TooLenient(AssertionError):
    """A tool has no objection to something that is broken."""


def lint(sam: Sam, source: Path) -> str:
    """`sam validate --lint` and cfn-lint; what to say of it. Raises CommandFailed."""
    sam.run("sam", "validate", "--lint", cwd=source)
    sam.run("cfn-lint", "template.yaml", cwd=source)
    return "template: valid, no finding of cfn-lint"


def check_definitions(sam: Sam, source: Path) -> str:
    """statelint on the definitions as they are deployed; what to say of it. Raises CommandFailed, TooLenient."""
    folder = sam.work / "definitions"
    folder.mkdir()
    found = {name: _substituted(definition) for name, definition in definitions(source).items()}
    for name, definition in found.items():
        sam.run("statelint", _written(folder / f"{name}.json", definition), cwd=folder)
    for fault, broken in _broken_definitions(next(iter(found.values()))).items():
        file = _written(folder / "broken.json", broken)
        if not _refused(sam, "statelint", file):
            raise TooLenient(f"statelint has no objection to {fault}")
    return f"state machines: no finding of statelint in {len(found)}; what was broken on purpose it found"


def check_security(sam: Sam, source: Path) -> str:
    """checkov on the template; what to say of it. Raises CommandFailed, TooLenient."""
    folder = sam.work / "security"
    folder.mkdir()
    template = (source / "template.yaml").read_text(encoding="utf-8")
    (folder / "template.yaml").write_text(template, encoding="utf-8")
    (folder / "broken.yaml").write_text(_without_encryption(template), encoding="utf-8")
    told = sam.run(
        "checkov", "-f", "template.yaml", "broken.yaml", "--framework", "cloudformation", "--compact", "--quiet",
        "--skip-download", "--soft-fail", "--output", "json", cwd=folder,
    )  # fmt: skip
    findings = _findings(told)
    wrong, unused = judged(findings["/template.yaml"])
    if wrong or unused:
        raise CommandFailed(f"checkov: {', '.join(wrong) or 'no finding'}; exceptions without use: {unused}")
    if not judged(findings["/broken.yaml"])[0]:
        raise TooLenient("checkov has no objection to tables that are not backed up")
    return f"security: no finding of checkov but for {len(CHECKOV_EXCEPTIONS)} exceptions; what was broken it found"


def judged(findings: set[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Findings (check, resource) that no exception covers, and exceptions that cover none."""

    def covers(exception: tuple[str, str], finding: tuple[str, str]) -> bool:
        return exception[0] == finding[0] and fnmatch(finding[1], exception[1])

    wrong = [f for f in sorted(findings) if not any(covers(e, f) for e in CHECKOV_EXCEPTIONS)]
    unused = [e for e in CHECKOV_EXCEPTIONS if not any(covers(e, f) for f in findings)]
    return [f"{check} of {resource}" for check, resource in wrong], [" ".join(e) for e in unused]


def _findings(told: str) -> dict[str, set[tuple[str, str]]]:
    report = json.loads(told[told.index("{") :])
    found: dict[str, set[tuple[str, str]]] = {"/template.yaml": set(), "/broken.yaml": set()}
    for each in report["results"]["failed_checks"]:
        found[each["file_path"]].add((each["check_id"], each["resource"].rpartition(".")[2]))
    return found


def _without_encryption(template: str) -> str:
    broken = template.replace("PointInTimeRecoveryEnabled: true", "PointInTimeRecoveryEnabled: false")
    if broken == template:
        raise CommandFailed("the template has nothing that could be broken for checkov")
    return broken


def _substituted(definition: Mapping[str, Any]) -> dict[str, Any]:
    """With ARNs in the places of `${Name}`, as CloudFormation puts them there."""
    arn = r"arn:aws:lambda:us-east-1:123456789012:function:\1"
    substituted: dict[str, Any] = json.loads(re.sub(r"\$\{(\w+)\}", arn, json.dumps(definition)))
    return substituted


def _broken_definitions(definition: dict[str, Any]) -> dict[str, dict[str, Any]]:
    nowhere, unknown, idle = (copy.deepcopy(definition) for _ in range(3))
    first = definition["StartAt"]
    nowhere["States"][first]["Next"] = "Nowhere"
    unknown["States"][first]["TimeoutSecond"] = 5
    idle["States"][first]["Type"] = "Tusk"
    return {"a state that leads nowhere": nowhere, "a field that is unknown": unknown, "a type that is unknown": idle}


def _written(file: Path, definition: Mapping[str, Any]) -> str:
    file.write_text(json.dumps(definition), encoding="utf-8")
    return str(file)


def _refused(sam: Sam, *command: str) -> bool:
    try:
        sam.run(*command, cwd=sam.work)
    except CommandFailed:
        return True
    return False


ALL = (lint, check_definitions, check_security)
"""Each is given what `make deploy-check` deploys, and returns what to say when it has no objection."""
