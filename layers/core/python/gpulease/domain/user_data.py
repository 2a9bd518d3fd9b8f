"""Cloud-init user data for a machine: who may log in, the agent, and the user's start script, byte for byte.

Invariant: what lands in `START_SCRIPT_PATH` is exactly the bytes given, whatever they are. They travel as base64 inside
the document, so no shell, YAML or line-end rule ever touches them. The document is YAML in its JSON form, in ASCII.

With an agent it is the agent that runs the script, and the document takes the first of three forms that fits into what
the provider carries: plain; gzipped, which cloud-init unpacks; gzipped and with a few lines in the agent's place that
fetch it from our API and check its SHA-256.
"""

import base64
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

START_SCRIPT_PATH = "/var/lib/gpulease/start-script"
START_LOG_PATH = "/var/log/gpulease-start.log"
AGENT_PATH = "/usr/local/lib/gpulease/agent.py"
AGENT_CONFIG_PATH = "/etc/gpulease/agent.json"
FETCH_PATH = "/usr/local/lib/gpulease/fetch.py"

FETCH = """import hashlib,json,sys,time,urllib.request as u
c=json.load(open(%(config)r))
r=u.Request(c["url"]+%(route)r,headers={"Authorization":"Bearer "+c["token"]})
p=5
while 1:
 try:
  d=u.urlopen(r,timeout=30).read()
  if hashlib.sha256(d).hexdigest()==%(digest)r:break
 except OSError:pass
 time.sleep(p);p=min(p*2,300)
open(%(agent)r,"wb").write(d)
"""


class UserDataTooLarge(ValueError):
    """In no form does it fit. `size` of the smallest, in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{size} bytes of user data, and the provider takes {limit}")
        self.size = size
        self.limit = limit


@dataclass(frozen=True, slots=True)
class AgentParts:
    """The agent of one machine: its program, gzipped, with the SHA-256 of what that unpacks to, and its configuration.

    `route`: where under the configuration's `url` the same program can be had, for whoever has the token.
    """

    packed: bytes
    sha256: str
    config: str
    route: str


def build_user_data(ssh_keys: Sequence[str], start_script: bytes = b"", hostname: str | None = None) -> bytes:
    """A `#cloud-config` document without an agent. The script runs once, at the end of the first boot, as root.

    A script that begins with `#!` is executed as it is, any other is given to bash. Output goes to `START_LOG_PATH`.
    """
    document = _login(ssh_keys, hostname)
    if start_script:
        document["write_files"] = [_script_file(start_script)]
        document["runcmd"] = [_run_command(start_script)]
    return _written(document)


def build_with_agent(ssh_keys: Sequence[str], start_script: bytes, agent: AgentParts, max_bytes: int) -> bytes:
    """The document with an agent, in at most `max_bytes`. Raises UserDataTooLarge."""
    whole = _written(_with_agent(ssh_keys, start_script, agent, fetched=False))
    if len(whole) <= max_bytes:
        return whole
    packed = gzip.compress(whole, 9, mtime=0)
    if len(packed) <= max_bytes:
        return packed
    small = gzip.compress(_written(_with_agent(ssh_keys, start_script, agent, fetched=True)), 9, mtime=0)
    if len(small) <= max_bytes:
        return small
    raise UserDataTooLarge(len(small), max_bytes)


def read_user_data(user_data: bytes) -> dict[str, Any]:
    """The document in any of its forms, for whoever plays the machine. Raises ValueError: not one of ours."""
    text = gzip.decompress(user_data) if user_data.startswith(b"\x1f\x8b") else user_data
    first, _, rest = text.partition(b"\n")
    if first != b"#cloud-config":
        raise ValueError("no cloud-config")
    loaded = json.loads(_LONG_ESCAPE.sub(_short, rest.decode("ascii")))
    if not isinstance(loaded, dict):
        raise ValueError("no object")
    return loaded


def agent_config_in(user_data: bytes) -> dict[str, Any] | None:
    """The agent's configuration in a machine's user data; None = it has no agent."""
    for file in read_user_data(user_data).get("write_files", ()):
        if file["path"] == AGENT_CONFIG_PATH:
            config: dict[str, Any] = json.loads(base64.b64decode(file["content"]))
            return config
    return None


def _short(escape: re.Match[str]) -> str:
    return escape.group() if escape[1] is None else json.dumps(chr(int(escape[1], 16)))[1:-1]


def _login(ssh_keys: Sequence[str], hostname: str | None = None) -> dict[str, Any]:
    document: dict[str, Any] = {
        # Providers' images log in as root; by default cloud-init would put a notice in front of root's keys.
        "disable_root": False,
        # The password stays as the provider set it: it opens the console when the network does not work.
        "users": [{"name": "root", "lock_passwd": False, "ssh_authorized_keys": list(ssh_keys)}],
    }
    if ssh_keys:
        document["ssh_pwauth"] = False
    if hostname is not None:
        document["hostname"] = hostname
    return document


def _with_agent(ssh_keys: Sequence[str], start_script: bytes, agent: AgentParts, *, fetched: bool) -> dict[str, Any]:
    document = _login(ssh_keys)
    files = [_file(AGENT_CONFIG_PATH, agent.config.encode(), "0600")]
    commands = [["python3", AGENT_PATH, "install"]]
    if fetched:
        names = {"config": AGENT_CONFIG_PATH, "route": agent.route, "digest": agent.sha256, "agent": AGENT_PATH}
        files.append(_file(FETCH_PATH, (FETCH % names).encode(), "0700"))
        commands.insert(0, ["python3", FETCH_PATH])
    else:
        files.append(_file(AGENT_PATH, agent.packed, "0700", "gz+b64"))
    if start_script:
        files.append(_script_file(start_script))
    document["write_files"] = files
    document["runcmd"] = commands
    return document


def _script_file(script: bytes) -> dict[str, str]:
    return _file(START_SCRIPT_PATH, script, "0700")


def _file(path: str, content: bytes, mode: str, encoding: str = "b64") -> dict[str, str]:
    return {
        "path": path,
        "owner": "root:root",
        "permissions": mode,
        "encoding": encoding,
        "content": base64.b64encode(content).decode("ascii"),
    }


def _run_command(script: bytes) -> list[str]:
    command = START_SCRIPT_PATH if script.startswith(b"#!") else f"/bin/bash {START_SCRIPT_PATH}"
    return ["/bin/sh", "-c", f"exec {command} >{START_LOG_PATH} 2>&1"]


def _written(document: dict[str, Any]) -> bytes:
    return b"#cloud-config\n" + _as_yaml(json.dumps(document, indent=1)).encode("ascii") + b"\n"


_ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)")
_LONG_ESCAPE = re.compile(r"\\(?:U([0-9a-f]{8})|.)")


def _as_yaml(text: str) -> str:
    """ASCII JSON as YAML. They differ beyond 16 bits: JSON writes two surrogates, in YAML that is two characters."""

    def written(escape: re.Match[str]) -> str:
        high, low = escape.groups()
        if high is None:
            return escape.group()
        return f"\\U{0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00:08x}"

    return _ESCAPE.sub(written, text)
