"""Settings of one deployment, from environment variables that template.yaml sets."""

import os
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from gpulease.errors import InputInvalid

PREFIX = "GPULEASE_"


class Settings(BaseModel):
    """Each field is the variable `GPULEASE_<FIELD>`. Missing or wrong ones stop the function at its first call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    deployment: str = Field(pattern=r"^[a-z0-9]{4,32}$")
    ledger_table: str = ""
    runtime_table: str = ""
    accounts: str = "vultr"
    """Comma separated account names, each `name` or `name=provider`, in order of preference."""
    provision_machine_arn: str = ""
    pause_machine_arn: str = ""
    resume_machine_arn: str = ""
    release_machine_arn: str = ""
    cache_machine_arn: str = ""
    secret_prefix: str = ""
    """Provider keys are the secrets `<prefix>/<account>`."""
    vultr_url: str = ""
    """Another address of the Vultr API, for a simulator."""
    aws_regions: str = ""
    """Comma separated; where AWS accounts rent machines."""
    aws_subnets: str = ""
    """Comma separated `ZONE=subnet-…`; empty = the default subnets."""
    aws_security_group: str = ""
    """Of all machines; empty = one that lets SSH in, made when it is first needed."""
    aws_image: str = ""
    """`ami-…` or `ssm:/path`; empty = AWS' Deep Learning base image."""
    aws_roles: str = ""
    """Comma separated `ACCOUNT=role ARN`, with `|EXTERNAL-ID` where one is needed; other AWS accounts are ourselves."""
    aws_url: str = ""
    """Another address of the AWS APIs, for a simulator."""
    admins: str = ""
    """Comma separated caller identities that see every lease."""
    ssh_port: int = Field(default=22, ge=1, le=65535)
    agent_url: str = ""
    """Where agents report to; empty = machines get none."""
    agents: bool = True
    """Whether machines get an agent."""
    alarm_topic_arn: str = ""
    failed_executions_queue_url: str = ""
    """Of `check_leases` alone."""

    @field_validator("aws_subnets", "aws_roles")
    @classmethod
    def _readable(cls, text: str, info: ValidationInfo) -> str:
        if text:
            # Imported on use: most functions are not told of AWS, and those that are have it read once.
            from gpulease.providers.aws.options import parse_roles, parse_subnets

            (parse_subnets if info.field_name == "aws_subnets" else parse_roles)(text)
        return text

    def account_providers(self) -> dict[str, str]:
        """Account name → provider name, in order of preference."""
        pairs = (entry.strip().partition("=") for entry in self.accounts.split(",") if entry.strip())
        return {name: provider or name for name, _, provider in pairs}

    def base_urls(self) -> dict[str, str]:
        """Provider name → API address, where it is not the adapter's own."""
        urls = {"vultr": self.vultr_url, "aws": self.aws_url}
        return {name: url for name, url in urls.items() if url}

    def machine_arns(self) -> dict[str, str]:
        return {
            "provision": self.provision_machine_arn,
            "pause": self.pause_machine_arn,
            "resume": self.resume_machine_arn,
            "release": self.release_machine_arn,
            "cache": self.cache_machine_arn,
        }


def from_environment() -> Settings:
    """Raises InputInvalid naming every variable that is wrong."""
    known = {
        name: os.environ[PREFIX + name.upper()] for name in Settings.model_fields if PREFIX + name.upper() in os.environ
    }
    return parse(known)


def parse(values: dict[str, Any]) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(f"{PREFIX}{str(e['loc'][0]).upper()}: {e['msg']}" for e in error.errors())
        raise InputInvalid(wrong, field="environment") from None
