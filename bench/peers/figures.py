"""How soon gpulease says `running`, and what it costs while nothing is rented."""

import time

from bench.peers.model import Idle, Ready, Spread, Taken
from bench.peers.processes import TURN_SECONDS, wait_for
from bench.peers.situations import fresh_world

SETTLE_SECONDS = 30.0
_PATIENCE_SECONDS = 600.0


def ready(n: int, *, network: bool) -> Ready:
    """So many machines one after the other; boot times are spread, so that they fall on different moments of a poll.

    With `network` the owner's private network exists already, as the other product's does from its second machine on:
    one more lease holds it meanwhile.
    """
    taken = Taken.now()
    asked_seconds: list[float] = []
    ready_seconds: list[float] = []
    with fresh_world() as world:
        provider, product = world.provider, world.product
        if network:
            product.ask(network=True)
            product.wait_running(_PATIENCE_SECONDS)
        for number in range(n):
            provider.boot_takes(8 + 1.7 * number % 8)
            known = {each.id for each in provider.machines()}
            asked = time.time()
            product.ask(network=network)
            lease = product.newest()
            while product.client.lease(lease.id).state != "running":
                if time.time() - asked > _PATIENCE_SECONDS:
                    raise RuntimeError(f"not running: {product.client.lease(lease.id).waiting_for}")
                time.sleep(TURN_SECONDS)
            running = time.time()
            (machine,) = (each for each in provider.machines() if each.id not in known)
            if machine.active is None:
                raise RuntimeError("shown as running although the provider never had it active")
            asked_seconds.append(machine.created - asked)
            ready_seconds.append(running - machine.active)
            product.client.release(lease.id)
            lease_id = lease.id
            wait_for("released", lambda: product.client.lease(lease_id).released, _PATIENCE_SECONDS)  # noqa: B023
    how = "in a private network that exists" if network else "no private network"
    return Ready(taken, how, Spread.of(asked_seconds), Spread.of(ready_seconds))


def idle(n: int) -> Idle:
    """Watched for so many minutes."""
    taken = Taken.now()
    rss: list[float] = []
    cpu: list[float] = []
    with fresh_world() as world:
        time.sleep(SETTLE_SECONDS)
        for _ in range(n):
            before = world.product.usage()[1]
            time.sleep(60)
            rss_now, cpu_now = world.product.usage()
            rss.append(rss_now)
            cpu.append(cpu_now - before)
        return Idle(taken, round(world.product.start_seconds, 1), Spread.of(rss), Spread.of(cpu))
