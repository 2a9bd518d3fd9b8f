"""The body of `POST /v1/leases`, from a file and from options. Options override the file.

What needs no look at the world is refused here, before anything is sent, by the same model that the API uses. A field
is called what the user called it: by its option where it came from one, else by its key in the file.
"""

import base64
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpulease_cli import policy_options, ssh_keys
from gpulease_cli.errors import CliError
from gpulease_cli.text import clean, closest, duration

_OPTIONS = {
    "gpu": "--gpu",
    "gpu_count": "--gpu-count",
    "min_gpu_memory_gib": "--min-gpu-memory",
    "min_vcpus": "--min-vcpus",
    "min_memory_gib": "--min-memory",
    "min_disk_gb": "--min-disk",
    "providers": "--provider",
    "regions": "--region",
    "plans": "--plan",
    "plan_kinds": "--kind",
    "spot": "--spot",
    "max_price_per_hour_usd": "--max-price",
    "private_network": "--private-network",
    "network_scope": "--network-scope",
    "ssh_keys": "--ssh-key",
    "image": "--image",
    "labels": "--label",
    "max_duration_seconds": "--max-duration",
    "max_attempts": "--max-attempts",
    "retry_not_ready": "--retry-not-ready",
    "cache": "--cache",
    "name": "--name",
    "start_script": "--start-script",
    "start_script_base64": "--start-script",
}
_BESIDE_THE_SPEC = ("name", "start_script", "start_script_base64")
_LISTS = ("gpu", "providers", "regions", "plans", "plan_kinds", "ssh_keys")
_COMMA_LISTS = frozenset({"gpu", "providers", "regions", "plans"})
_LARGEST_FILE_BYTES = 1024 * 1024
_RIGHT = {
    "gpu": "give a model name like A100",
    "ssh_keys": "give a public key line like `ssh-ed25519 AAAA... me@here`",
    "cache": "give NAME:/absolute/path,/another, with a name of small letters, digits and -",
    "labels": "give names of letters, digits, `.`, `_` and `-` with values of at most 128 characters",
    "image": "give a name of letters, digits, spaces, `.`, `_`, `:`, `/` and `-`",
}


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """`body` as it is sent; `from_options`: the fields that options set, so messages can name them."""

    body: Mapping[str, Any]
    from_options: frozenset[str]

    def call(self, field: str) -> str:
        """What the user calls this field of the API."""
        top = field.split(".", 1)[0].split("[", 1)[0]
        if top == "policy" and top in self.from_options:
            return policy_options.option_of(field)
        return _OPTIONS[top] if top in self.from_options and top in _OPTIONS else field


def from_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """API fields of the options that were given. `values` carries click's parameter names."""
    found: dict[str, Any] = {}
    if values.get("cache_docker") and not values.get("cache"):
        raise CliError("says nothing without --cache", field="--cache-docker")
    for field, option in _OPTIONS.items():
        value = values.get(option.removeprefix("--").replace("-", "_"))
        if value is None or value == ():
            continue
        if field in _COMMA_LISTS:
            value = [part.strip() for item in value for part in item.split(",") if part.strip()]
            if not value:
                raise CliError("is empty; give at least one name", field=option)
        elif field == "plan_kinds":
            value = list(value)
        elif field == "labels":
            value = _labels(value)
        elif field == "cache":
            value = cache_use(value, docker=bool(values.get("cache_docker")))
        elif field == "ssh_keys":
            value = ssh_keys.resolve(value)
        elif field == "start_script":
            found |= _script(value)
            continue
        elif field == "start_script_base64":
            continue
        elif isinstance(value, Decimal):
            value = str(value)
        found[field] = value
    if policy := policy_options.fields(values):
        found["policy"] = policy
    return found


def cache_use(text: str, *, docker: bool = False, field: str = "--cache") -> dict[str, Any]:
    """`NAME:/path,/path` as the API's field. Raises CliError."""
    name, _, paths = text.partition(":")
    mounts = [path.strip() for path in paths.split(",") if path.strip()]
    if not name:
        raise CliError(f"{text!r} names no cache; give NAME:/path,/path", field=field)
    if not mounts and not docker:
        raise CliError(f"{text!r} keeps nothing; give {name}:/path,/path, or --cache-docker as well", field=field)
    return {"name": name, "mounts": mounts, **({"docker": True} if docker else {})}


def query(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fields as filters of `GET /v1/offers`; a list becomes one pair per entry."""
    pairs: list[tuple[str, str]] = []
    for key, value in fields.items():
        pairs += [(key, str(item)) for item in (value if isinstance(value, list) else [value])]
    return pairs


def from_file(path: str) -> dict[str, Any]:
    """The fields of a lease file (YAML, `-` = stdin). Raises CliError with the line and column of bad YAML."""
    import yaml

    label = "stdin" if path == "-" else path
    try:
        content = yaml.safe_load(read_bytes(path, "-f").decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CliError("is not UTF-8 text; give a YAML file", field=label) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise CliError(f"{where}{error.problem or 'bad YAML'}; see docs/cli.md for an example", field=label) from error
    except yaml.YAMLError as error:
        raise CliError(f"bad YAML: {error}; see docs/cli.md for an example", field=label) from error
    if not isinstance(content, dict):
        raise CliError("holds no fields; give lines like `gpu: [A100]`", field=label)
    known = _known_fields()
    for key in content:
        if key not in known:
            near = closest(str(key), known)
            right = f"did you mean {near}?" if near else f"known: {', '.join(known)}"
            raise CliError(f"unknown field; {right}", field=f"{label}: {clean(key)}")
    if isinstance(content.get("cache"), str):
        content["cache"] = cache_use(content["cache"], field=f"{label}: cache")
    return {key: [value] if key in _LISTS and isinstance(value, str) else value for key, value in content.items()}


def build(file: Mapping[str, Any], options: Mapping[str, Any]) -> LeaseRequest:
    """Both together, checked. Raises CliError for the first thing that is wrong."""
    merged = dict(file)
    if "start_script" in options or "start_script_base64" in options:
        merged.pop("start_script", None)
        merged.pop("start_script_base64", None)
    merged |= options
    request = LeaseRequest(merged, frozenset(options))
    _check(request)
    return request


def read_bytes(path: str, field: str, most: int = _LARGEST_FILE_BYTES) -> bytes:
    """The content of a file or of stdin (`-`). Raises CliError."""
    if path == "-":
        content = sys.stdin.buffer.read(most + 1)
    else:
        try:
            with Path(path).expanduser().open("rb") as stream:
                content = stream.read(most + 1)
        except OSError as error:
            raise CliError(f"cannot read {path} ({error.strerror}); give a file that exists", field=field) from error
    if len(content) > most:
        raise CliError(f"{path} is larger than {most} bytes; give a smaller file", field=field)
    return content


def _known_fields() -> list[str]:
    from gpulease.domain.spec import LeaseSpec

    return [*LeaseSpec.model_fields, *_BESIDE_THE_SPEC]


def _labels(pairs: Sequence[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise CliError(f"{pair!r} has no name and value; give it as name=value", field="--label")
        if labels.setdefault(key, value) != value:
            raise CliError(f"{key!r} is given twice with different values; give it once", field="--label")
    return labels


def _script(path: str) -> dict[str, Any]:
    content = read_bytes(path, "--start-script")
    try:
        return {"start_script": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"start_script_base64": base64.b64encode(content).decode("ascii")}


def _check(request: LeaseRequest) -> None:
    from gpulease.domain.spec import LeaseSpec
    from pydantic import ValidationError

    body = request.body
    for key in _BESIDE_THE_SPEC:
        if key in body and not isinstance(body[key], str):
            raise CliError(f"{body[key]!r} is not text; put it in quotes", field=request.call(key))
    _check_script(request)
    try:
        LeaseSpec.model_validate({key: value for key, value in body.items() if key not in _BESIDE_THE_SPEC})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in problem["loc"] if not isinstance(part, int))
        if not field.startswith("policy."):
            field = field.partition(".")[0]
        raise CliError(_explained(field, problem), field=request.call(field)) from error


def _check_script(request: LeaseRequest) -> None:
    from gpulease.domain.spec import MAX_START_SCRIPT_BYTES

    body = request.body
    if "start_script" in body and "start_script_base64" in body:
        raise CliError("contradicts start_script_base64; give one of the two", field="start_script")
    if "start_script" in body:
        field, size = "start_script", len(body["start_script"].encode("utf-8"))
    elif "start_script_base64" in body:
        field = "start_script_base64"
        try:
            size = len(base64.b64decode(body[field], validate=True))
        except ValueError as error:
            raise CliError("is not base64; encode the script's bytes", field=field) from error
    else:
        return
    if size > MAX_START_SCRIPT_BYTES:
        raise CliError(
            f"the script has {size} bytes; at most {MAX_START_SCRIPT_BYTES} fit, let a short script fetch the rest",
            field=request.call(field),
        )


def _explained(field: str, problem: Any) -> str:
    """A pydantic error as `<what is wrong>; <what would be right>`."""
    kind, facts, given = problem["type"], problem.get("ctx", {}), clean(repr(problem.get("input")))
    given = given if len(given) <= 60 else given[:57] + "..."
    if field.endswith("_seconds") and isinstance(problem.get("input"), int):
        given = duration(problem["input"])
        facts = {name: duration(value) for name, value in facts.items() if isinstance(value, int)}
    match kind:
        case "greater_than":
            return f"{given} is not possible; give more than {facts['gt']}"
        case "greater_than_equal":
            return f"{given} is too small; give {facts['ge']} or more"
        case "less_than_equal":
            return f"{given} is too large; give {facts['le']} or less"
        case "enum" | "literal_error":
            return f"{given} is not known; give one of {facts['expected']}"
        case "too_long":
            return f"has too many entries; give at most {facts['max_length']}"
        case "value_error":
            # Our own models write whole sentences, led by the field's name that is printed already.
            return str(facts["error"]).removeprefix(f"{field}: ")
    right = _RIGHT.get(field, problem["msg"][:1].lower() + problem["msg"][1:])
    return f"{given} is not right; {right}"
