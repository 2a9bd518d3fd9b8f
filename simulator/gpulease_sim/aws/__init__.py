"""A simulated AWS account: EC2 with EBS and spot, and as much of STS and SSM as goes with it.

moto (an EC2 stand-in written by others) checks parameters, makes ids, addresses, subnets, security groups and
images, and answers whatever is not named here. Before it stands a layer of our own with what moto leaves out: time,
idempotency tokens, refused transitions, spot requests, eventual consistency, quotas, capacity, rate limits, faults,
and a book of every object that was ever paid for. It shares no code with gpulease, whose AWS adapter it checks.

In process, on any clock (Unix seconds; a virtual one makes waiting cost nothing), with the real boto3::

    cloud = AwsCloud(clock=lambda: now, seed=1, settings=Settings(vcpu_limit=64))
    ec2 = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any", config=...)
    connect(ec2, cloud, passed=lambda seconds: ...)     # also for "sts" and "ssm" clients
    ec2.run_instances(ImageId=cloud.image_id("us-east-1"), ...)

`connect` hooks botocore's `before-send`, so no socket is opened and signing, parsing, waiters and retries are the
real ones. botocore's own retries sleep on the real clock: give the client `retries={"total_max_attempts": 1}` in
virtual time. A cut connection is botocore's ConnectionClosedError, an answer later than the read timeout its
ReadTimeoutError.

Over HTTP: `server.serve(cloud, clock=clock)` gives a handle with `url` for `endpoint_url` (all three services at
one address; the control routes are under /_control) and `close()`. `python -m gpulease_sim.aws --port N
--time-scale S --seed K` does it from the shell; `__main__.main(argv)` is the same as a function.

Time. The cloud never waits, reads no clock but the given one and has no threads. What is due happens at the next
call, or when `cloud.advance()` is called; `cloud.next_event()` says when that would be worth while. Every value is
drawn from the seed and the object's number, so the order of reads changes nothing; ids repeat with the same seed
and the same calls.

Scripting. `cloud.settings = replace(cloud.settings, …)` changes what holds from now on (`Settings`: capacity per
zone and type, quotas, rate limits, rewording, access keys, prices). Behaviour is drawn when an object is made:
`settings.instance` (`Behaviour`), `settings.volume` (`VolumeBehaviour`), changed by each `Rule` that matches tags,
type, zone, spot or number. `cloud.faults.add(Fault(action="RunInstances", times=1, …))` makes the API misbehave;
`outage`, `lost_answer`, `error_after`, `no_capacity`, `auth_lost` and `throttling_storm` are common faults. By
hand: `cloud.remove_by_hand(id)`, `cloud.reclaim(instance_id)`, `cloud.impair(instance_id)`. `cloud.machine(id)` and
`cloud.disk(id)` look past all lag; `cloud.calls` are the latest calls; `cloud.ssh_open(address)` tells whether a
simulated host accepts TCP on port 22 now.

Guests. Append to `cloud.guests` anything that has the five methods of `account.Guests`: `booted`, `stopped`,
`volume_attached`, `volume_detached`, `interruption_notice`. Each gets a `GuestView` (ids, tags, user data as bytes,
addresses, boot number, device name to volume id) and the simulated moment; a program on the machine acts back
through `cloud.guest_shutdown(id)` (honours InstanceInitiatedShutdownBehavior), `cloud.mount(volume)` and
`cloud.unmount(volume)` (a mounted volume's detach stays `busy`), and reads `cloud.interruption(id)`. Hooks run
inside `advance`, at their moment.

Truth. `cloud.book.objects()`, `.billed()`, `.get(id)` and `.cost()` tell of every instance, volume, address,
snapshot and spot request ever made: `created`, `active`, `destroyed`, `running` (the billed times), `hourly_usd`,
`cost_usd`, `tags`, `spot`, `user_data_bytes`. A stopped instance is in `billed()` at 0 per hour
(`billed(free=False)` leaves it out) beside its volumes.

Not simulated: fleets and RequestSpotInstances, capacity blocks, hibernation's bill, service quotas API, data
transfer, IAM policies. No state file: an account ends with its process.
"""

from gpulease_sim.answers import ConnectionCut, SimResponse
from gpulease_sim.aws.account import Guests, GuestView
from gpulease_sim.aws.book import Book, BookObject
from gpulease_sim.aws.cloud import AwsCloud, SeenCall
from gpulease_sim.aws.faults import (
    MUTATING,
    Fault,
    FaultPlan,
    auth_lost,
    error_after,
    lost_answer,
    no_capacity,
    outage,
    throttling_storm,
)
from gpulease_sim.aws.hook import connect
from gpulease_sim.aws.settings import Behaviour, Rule, Settings, VolumeBehaviour, plain

__all__ = [
    "MUTATING",
    "AwsCloud",
    "Behaviour",
    "Book",
    "BookObject",
    "ConnectionCut",
    "Fault",
    "FaultPlan",
    "GuestView",
    "Guests",
    "Rule",
    "SeenCall",
    "Settings",
    "SimResponse",
    "VolumeBehaviour",
    "auth_lost",
    "connect",
    "error_after",
    "lost_answer",
    "no_capacity",
    "outage",
    "plain",
    "throttling_storm",
]
