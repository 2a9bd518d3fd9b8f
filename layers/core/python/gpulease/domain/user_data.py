"""Cloud-init user data for a machine: who may log in, and the user's start script, byte for byte.

Invariant: what lands in `START_SCRIPT_PATH` is exactly the bytes given, whatever they are. They travel as base64 inside
the document, so no shell, YAML or line-end rule ever touches them. The document is YAML in its JSON form, in ASCII.
"""

import base64
import json
import re
from collections.abc import Sequence

START_SCRIPT_PATH = "/var/lib/gpulease/start-script"
START_LOG_PATH = "/var/log/gpulease-start.log"


def build_user_data(ssh_keys: Sequence[str], start_script: bytes = b"", hostname: str | None = None) -> bytes:
    """A `#cloud-config` document. The script runs once, at the end of the first boot, as root.

    A script that begins with `#!` is executed as it is, any other is given to bash. Output goes to `START_LOG_PATH`.
    """
    document: dict[str, object] = {
        # Providers' images log in as root; by default cloud-init would put a notice in front of root's keys.
        "disable_root": False,
        # The password stays as the provider set it: it opens the console when the network does not work.
        "users": [{"name": "root", "lock_passwd": False, "ssh_authorized_keys": list(ssh_keys)}],
    }
    if ssh_keys:
        document["ssh_pwauth"] = False
    if hostname is not None:
        document["hostname"] = hostname
    if start_script:
        document["write_files"] = [
            {
                "path": START_SCRIPT_PATH,
                "owner": "root:root",
                "permissions": "0700",
                "encoding": "b64",
                "content": base64.b64encode(start_script).decode("ascii"),
            }
        ]
        document["runcmd"] = [_run_command(start_script)]
    return b"#cloud-config\n" + _as_yaml(json.dumps(document, indent=1)).encode("ascii") + b"\n"


def _run_command(script: bytes) -> list[str]:
    command = START_SCRIPT_PATH if script.startswith(b"#!") else f"/bin/bash {START_SCRIPT_PATH}"
    return ["/bin/sh", "-c", f"exec {command} >{START_LOG_PATH} 2>&1"]


_ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)")


def _as_yaml(text: str) -> str:
    """ASCII JSON as YAML. They differ beyond 16 bits: JSON writes two surrogates, in YAML that is two characters."""

    def written(escape: re.Match[str]) -> str:
        high, low = escape.groups()
        if high is None:
            return escape.group()
        return f"\\U{0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00:08x}"

    return _ESCAPE.sub(written, text)
