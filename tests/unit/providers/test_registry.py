"""Providers by name, imported on use."""

import subprocess
import sys

import pytest
from gpulease.errors import InputInvalid
from gpulease.providers.registry import PROVIDERS, build

from tests.support.provider_world import KEY, Lines, ManualClock, OneKey
from tests.unit.providers.test_http import Scripted, answer


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_every_registered_adapter_can_be_built(name: str) -> None:
    provider = build(
        f"{name}-research",
        name,
        Scripted(answer(200)),
        OneKey(),
        clock=ManualClock(),
        log=Lines(),
        sleep=lambda seconds: None,
    )

    assert provider.name == name and provider.account == f"{name}-research"
    assert provider.visibility_window_seconds > 0 and provider.capabilities.create_timeout_seconds > 0
    assert KEY not in repr(provider)


def test_an_unknown_provider_is_an_input_error() -> None:
    with pytest.raises(InputInvalid) as caught:
        build("x", "x", Scripted(answer(200)), OneKey(), clock=ManualClock(), log=Lines(), sleep=lambda seconds: None)

    assert caught.value.field == "provider" and "vultr" in str(caught.value)


@pytest.mark.parametrize(
    "module", ["gpulease.providers.registry", "gpulease.providers.aws.adapter", "gpulease.providers.vultr.adapter"]
)
def test_importing_an_adapter_imports_no_http_library_and_no_catalogue(module: str) -> None:
    heavy = {"requests", "urllib3", "gpuhunt", "boto3", "botocore"}
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603

    assert done.stdout.strip() == "[]"
