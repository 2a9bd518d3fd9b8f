"""C59, C61: names that collide, and start scripts that are hard to carry."""

import base64
from typing import Any

import pytest
import yaml
from gpulease.domain.lease import LeaseState
from gpulease.domain.user_data import START_SCRIPT_PATH
from gpulease_local.simulate.virtual import ApiRefused

from tests.support.case_world import ONE_VM, CaseWorld

RELEASED, RUNNING = LeaseState.RELEASED, LeaseState.RUNNING
ANNA, BERT = "arn:aws:iam::111122223333:user/anna", "arn:aws:iam::111122223333:user/bert"
SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJe8 anna@laptop"


@pytest.mark.parametrize("names", [("My-Box", "my_box", "my.box"), ("box", "box", "box")], ids=["alike", "same"])
def test_c59_names_that_look_the_same_at_the_provider(world: CaseWorld, names: tuple[str, str, str]) -> None:
    wishes = list(zip(names, (ANNA, BERT, ANNA), strict=True))
    first, second, third = (world.up(owner=owner, **{**ONE_VM, "name": name}) for name, owner in wishes)
    for lease_id in (first, second, third):
        world.until(lease_id, RUNNING, within=300)

    machines = world.ours("instance")
    assert len({each.id for each in machines}) == 3
    assert len({each.label for each in machines}) == 3, "the label carries a unique id"
    assert len({marker for each in machines for marker in each.markers}) == 3
    for owner, own in ((ANNA, {first, third}), (BERT, {second})):
        shown = world.stack.api("GET", "/v1/leases", owner=owner)["leases"]
        assert {lease["id"] for lease in shown} == own
    with pytest.raises(ApiRefused) as refused:
        world.down(first, owner=BERT)
    assert refused.value.status == 404

    world.down(second, owner=BERT)
    world.until(second, RELEASED, within=300)

    assert {each.id for each in world.billed("instance")} == {
        world.machine_of(first).provider_id,
        world.machine_of(third).provider_id,
    }
    assert [world.lease(each).state for each in (first, third)] == [RUNNING, RUNNING]
    world.assert_right_at_the_end()


SCRIPTS = {
    "quotes": b"#!/bin/sh\necho \"it's $HOME\" 'and \"that\"' `date` \\ \\n $'x'\n",
    "secret-with-dollar": b"#!/bin/bash\nexport TOKEN='pa$$w0rd$1{x}'\n",
    "apostrophe-in-comment": b"#!/bin/sh\n# don't\ntrue\n",
    "crlf": b"#!/bin/sh\r\necho one\r\necho two\r\n",
    "umlaut": "#!/bin/sh\necho 'Gr\u00fc\u00dfe \U0001f680'\n".encode(),
    "empty-first-line": b"\n#!/bin/sh\necho late\n",
    "leading-blanks": b"   #!/bin/sh\n\t echo blanks\n  ",
    "no-end-of-line": b"#!/bin/sh\ntrue",
    "yaml": b"#cloud-config\nruncmd: [ {a: 'b'} ]\n---\n...\n",
    "every-byte": bytes(range(256)),
}


WAYS = [
    pytest.param(field, script, id=f"{name}-as-{'text' if field == 'start_script' else 'base64'}")
    for name, script in SCRIPTS.items()
    for field in ("start_script", "start_script_base64")
    # What is no text can only travel as base64.
    if (field, name) != ("start_script", "every-byte")
]


@pytest.mark.parametrize(("field", "script"), WAYS)
def test_c61_the_script_arrives_byte_for_byte(world: CaseWorld, field: str, script: bytes) -> None:
    given = script.decode() if field == "start_script" else base64.b64encode(script).decode()

    lease_id = world.up(**ONE_VM, ssh_keys=[SSH_KEY], **{field: given})
    world.until(lease_id, RUNNING, within=300)

    [machine] = world.ours("instance")
    document: dict[str, Any] = yaml.safe_load(machine.user_data_bytes.decode("ascii"))
    assert machine.user_data_bytes.startswith(b"#cloud-config\n")
    [file] = document["write_files"]
    assert (file["path"], base64.b64decode(file["content"])) == (START_SCRIPT_PATH, script)
    # Our own part still runs: the keys, and the command that starts the script.
    assert document["users"][0]["ssh_authorized_keys"] == [SSH_KEY]
    [[shell, flag, command]] = document["runcmd"]
    assert (shell, flag) == ("/bin/sh", "-c")
    assert START_SCRIPT_PATH in command
    world.assert_right_at_the_end()


def test_c60_a_script_that_is_too_long_is_refused_before_anything_exists(world: CaseWorld) -> None:
    with pytest.raises(ApiRefused, match=str(32 * 1024)) as refused:
        world.up(**ONE_VM, start_script="#" * (32 * 1024 + 1))

    assert refused.value.status in (400, 422)
    assert world.calls("POST") == []
    assert world.stack.leases() == []
    world.assert_right_at_the_end()
