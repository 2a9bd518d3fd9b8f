"""What the simulation reads out of AWS's requests, and what it puts in place of AWS's answers."""

import random
from collections.abc import Mapping
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest
from gpulease_local.simulate.answers_aws import AwsAnswers
from gpulease_local.simulate.aws_calls import AwsRequest, aws_request
from gpulease_local.simulate.clouds import MACHINE, NETWORK, VOLUME
from gpulease_local.simulate.effects import Effect, Kind
from gpulease_local.simulate.provider_calls import aws_call, vultr_call
from gpulease_sim.aws import ConnectionCut, SimResponse

MARKER = "gpulease:simulated0:l-aaaaaaaaaaaa.instance.1"
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=AKIA/20260105/us-west-2/ec2/aws4_request, Signature=0"}


def asked(action: str, **params: str) -> AwsRequest:
    return aws_request(SIGNED, urlencode({"Action": action, **params}).encode())


def tagged(kind: str, tags: Mapping[str, str], number: int = 1) -> dict[str, str]:
    start = f"TagSpecification.{number}."
    found = {f"{start}ResourceType": kind}
    for n, (key, value) in enumerate(tags.items(), 1):
        found |= {f"{start}Tag.{n}.Key": key, f"{start}Tag.{n}.Value": value}
    return found


def effect(action: str, *, by_id: bool = False) -> Effect:
    method = "GET" if action.startswith("Describe") else "POST"
    return Effect(1, Kind.PROVIDER, action, "l-a", "F", method, provider="aws", action=action, by_id=by_id)


def test_region_action_and_whether_it_changes_something_are_read() -> None:
    read, change = asked("DescribeInstances"), asked("TerminateInstances", **{"InstanceId.1": "i-1"})

    assert (read.region, read.action, read.is_read) == ("us-west-2", "DescribeInstances", True)
    assert aws_call(read) is None
    assert not change.is_read
    call = aws_call(change)
    assert call is not None and (call.deletes, call.targets) == (MACHINE, ("i-1",))


def test_an_unsigned_request_is_none() -> None:
    with pytest.raises(ValueError, match="not signed"):
        aws_request({}, b"Action=RunInstances")


def test_the_marker_of_a_launch_is_its_machines_own() -> None:
    disk = tagged("volume", {"gpulease-marker": MARKER.replace("instance", "volume")})
    machine = tagged("instance", {"Name": "x", "gpulease-marker": MARKER}, 2)

    call = aws_call(asked("RunInstances", **disk, **machine))

    assert call is not None and (call.kind, call.markers) == ("instance", (MARKER,))


def test_the_group_for_ssh_is_no_resource_of_a_lease_and_a_private_network_is() -> None:
    ssh = aws_call(asked("CreateSecurityGroup", GroupName="gpulease-simulated0"))
    private = aws_call(asked("CreateSecurityGroup", **tagged("security-group", {"gpulease-marker": MARKER})))

    assert ssh is not None and ssh.kind == ""
    assert private is not None and private.markers == (MARKER,)


def test_volumes_are_told_with_who_is_to_get_them() -> None:
    attach = aws_call(asked("AttachVolume", VolumeId="vol-1", InstanceId="i-1", Device="/dev/sdf"))
    delete = aws_call(asked("DeleteVolume", VolumeId="vol-1"))
    vultr = vultr_call("POST", "/blocks/b1/attach", b'{"instance_id": "m1"}')

    assert attach is not None and (attach.volume, attach.attach_to, attach.deletes) == ("vol-1", "i-1", "")
    assert delete is not None and (delete.volume, delete.deletes) == ("vol-1", VOLUME)
    assert vultr is not None and (vultr.volume, vultr.attach_to) == ("b1", "m1")


def test_vultrs_reads_are_no_changes_and_its_networks_are_deleted_by_path() -> None:
    assert vultr_call("GET", "/instances", b"") is None
    call = vultr_call("DELETE", "/vpcs/v1", b"")
    assert call is not None and (call.deletes, call.targets) == (NETWORK, ("v1",))


def instances(*ids: str) -> SimResponse:
    shown = "".join(f"<item><instanceId>{each}</instanceId></item>" for each in ids)
    body = (
        '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15"><reservationSet><item>'
        f"<instancesSet>{shown}</instancesSet></item></reservationSet></DescribeInstancesResponse>"
    )
    return SimResponse(200, {}, body.encode())


def shown(answer: SimResponse) -> list[str]:
    root = ElementTree.fromstring(answer.body)  # noqa: S314 - the simulation's own words
    return [str(each.text) for each in root.iter() if each.tag.endswith("instanceId")]


def test_a_late_list_leaves_out_what_is_new_and_a_read_by_id_is_no_list() -> None:
    answers = AwsAnswers(lambda: 1000.0, {"i-old": 900.0, "i-new": 990.0}.get)
    answer = instances("i-old", "i-new")

    assert shown(answers.late_list(effect("DescribeInstances"), answer)) == ["i-old"]
    assert answers.late_list(effect("DescribeInstances", by_id=True), answer) == answer


def test_refusals_deny_only_what_is_read_by_its_id() -> None:
    answers = AwsAnswers(lambda: 0.0, lambda thing_id: None)
    draw = random.Random(1)  # noqa: S311 - sameness is wanted here

    by_id = [answers.refused(effect("DescribeInstances", by_id=True), draw).body for _ in range(60)]
    lists = [answers.refused(effect("DescribeInstances"), draw).body for _ in range(60)]

    assert any(b"InvalidInstanceID.NotFound" in body for body in by_id)
    assert not any(b"NotFound" in body for body in lists)


def test_what_is_ignored_is_answered_like_a_launch_and_not_carried_out() -> None:
    answers = AwsAnswers(lambda: 0.0, lambda thing_id: None)
    done: list[int] = []

    answer = answers.ignored(effect("RunInstances"), lambda: done.append(1), random.Random(1))  # noqa: S311

    assert done == []
    assert answer.status == 200 and shown(answer)[0].startswith("i-")


def test_a_cut_connection_takes_its_seconds() -> None:
    with pytest.raises(ConnectionCut) as cut:
        AwsAnswers(lambda: 0.0, lambda thing_id: None).cut(15.0, "no answer")

    assert cut.value.elapsed_seconds == 15.0
