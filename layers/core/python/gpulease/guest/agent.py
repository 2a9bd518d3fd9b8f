"""The agent on a rented machine: says that the machine is ready and what uses it, keeps its cache, runs its script.

One file, standard library only, Python 3.8 or later, run as root by systemd (docs/agent.md). It is delivered as data in
the machine's user data and never imported by the control plane. Invariants: what is not known for sure to be blank is
never formatted; a start script runs once in the life of a machine, and not at all where GPUs are missing; a cache that
does not work is reported and holds nothing up; no error leads to more than one call in some seconds; the token is never
written to a log.
"""

from __future__ import annotations

import glob
import http.client
import json
import os
import queue
import random
import re
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import threading
import time
import urllib.parse
from typing import Any, Callable, Tuple

VERSION = "1"
CONFIG = "/etc/gpulease/agent.json"
PROGRAM = "/usr/local/lib/gpulease/agent.py"
RUN = "/run/gpulease"
STATE = "/var/lib/gpulease/agent-state.json"
SCRIPT_LOG = "/var/log/gpulease-start.log"
CACHE = "/var/lib/gpulease/cache"
READY_FLAG = RUN + "/cache-ready"
MARKER = ".gpulease-complete"
LONGEST_PAUSE = 300.0
MAX_PROBLEMS = 10
MIB = 1024 * 1024
BUSY_PERCENT = 5
BUSY_CORES = 0.1
SYSTEM = re.compile(
    r"sshd|systemd|rpcbind|chronyd|ntpd|snapd|dockerd|containerd|node_exporter|prometheus-node|dcgm-exporter"
    r"|nv-hostengine|amazon-ssm|tailscaled"
)
UNIT = """[Unit]
Description=gpulease agent
Wants=network-online.target
After=network-online.target
Before=docker.service
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/bin/env python3 %s
Restart=always
RestartSec=15
RestartSteps=5
RestartMaxDelaySec=300
KillMode=process
TimeoutStopSec=110
[Install]
WantedBy=multi-user.target
"""
BUSY = """#!/bin/sh
# gpulease-busy COMMAND...: as long as it runs, the machine is in use.
d=%s/busy
s=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)
{ echo "$$ $s" >"$d/.$$-$s" && mv "$d/.$$-$s" "$d/$$-$s"; } || echo "gpulease-busy: not noted" >&2
exec "$@"
"""
DOCKER_WAITS = "[Unit]\nConditionPathExists=%s\n"
Row = Tuple[str, str, str, str]
"""Of /proc/net/tcp: local end, remote end, state, inode. An end is `hex address:port`."""


class Problem(Exception):
    """Something that did not work on the machine; one line for people."""


def read(path: str, limit: int = 1 << 20) -> str:
    """The text of a file; empty where there is none to be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def write(path: str, text: str, mode: int = 0o644) -> None:
    """Put the text in the file's place in one step, and on disk."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(path + ".new", mode)
    os.replace(path + ".new", path)


# --- what is read of the machine --------------------------------------------------------------------------------------


def parse_gpus(text: str) -> list[dict[str, Any]]:
    """Lines `name, memory, used memory, utilisation` of nvidia-smi, without units; what is no number counts as 0."""
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.rsplit(",", 3)]
        if len(parts) == 4 and parts[0]:
            total, used, percent = (int(float(p)) if re.match(r"^[0-9.]+$", p) else 0 for p in parts[1:])
            gpus.append({"name": parts[0], "memory_mib": total, "used_mib": used, "percent": min(percent, 100)})
    return gpus


def parse_tcp(text: str) -> list[Row]:
    """Rows of /proc/net/tcp or tcp6. An IPv4 address in IPv6 form reads as IPv4."""
    rows = []
    for line in text.splitlines()[1:]:
        parts = line.split()
        if len(parts) > 9:
            ends = [re.sub(r"^0{16}F{4}0{4}", "", end) for end in parts[1:3]]
            rows.append((ends[0], ends[1], parts[3], parts[9]))
    return rows


def has_terminal(title: str) -> bool:
    """Whether a process title is that of an SSH session with a terminal (`sshd: root@pts/0`)."""
    return re.match(r"^sshd(-session)?: .*@pts/", title) is not None


class Machine:
    """Looks at processes and sockets. `proc` and `sys` may stand elsewhere in tests."""

    def __init__(self, proc: str = "/proc", sys: str = "/sys", dev: str = "/dev") -> None:
        self.proc, self.sys, self.dev = proc, sys, dev
        self._names: dict[str, str] = {}

    def pids(self) -> list[str]:
        return [name for name in os.listdir(self.proc) if name.isdigit()]

    def title(self, pid: str) -> str:
        return read("%s/%s/cmdline" % (self.proc, pid), 4096).replace("\0", " ")

    def stat(self, pid: str) -> list[str]:
        """Fields of /proc/PID/stat from the third on; empty = there is no such process."""
        return read("%s/%s/stat" % (self.proc, pid), 4096).rpartition(") ")[2].split()

    def started(self, pid: str) -> str:
        fields = self.stat(pid)
        return fields[19] if len(fields) > 19 and fields[0] != "Z" else ""

    def runs(self, pid: str, started: str) -> bool:
        """Whether the process of this number runs that began then. One in a container has another number here."""
        if self.started(pid) == started:
            return True
        inside = re.compile(r"^NSpid:.*\s%s$" % pid, re.M)
        return any(
            self.started(each) == started and inside.search(read("%s/%s/status" % (self.proc, each)))
            for each in self.pids()
        )

    def cpu_seconds(self, pid: str) -> float:
        fields = self.stat(pid)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if len(fields) > 12 else 0.0

    def has_ssh_session(self) -> bool:
        return any(has_terminal(self.title(pid)) for pid in self.pids())

    def has_connection(self, ssh_port: int) -> bool:
        """Whether somebody elsewhere, or at the end of an SSH tunnel, is connected to a port of a user's process.

        Containers have networks of their own: each is looked at once.
        """
        spaces: dict[str, str] = {}
        for pid in self.pids():
            try:
                spaces.setdefault(os.readlink("%s/%s/ns/net" % (self.proc, pid)), pid)
            except OSError:
                continue
        found: list[tuple[Row, str]] = []
        inside: dict[tuple[str, str], str] = {}
        for pid in spaces.values():
            base = "%s/%s/net/" % (self.proc, pid)
            rows = parse_tcp(read(base + "tcp")) + parse_tcp(read(base + "tcp6"))
            listening = {row[0].rpartition(":")[2]: row[3] for row in rows if row[2] == "0A"}
            listening.pop("%04X" % ssh_port, None)
            for row in rows:
                if row[2] == "01":
                    inside[row[0], row[1]] = row[3]
                    port = row[0].rpartition(":")[2]
                    if port in listening:
                        found.append((row, listening[port]))
        tunnels: set[str] | None = None
        for row, listener in found:
            peer = inside.get((row[1], row[0]))
            if peer is not None:
                # Both ends are here. Only what comes through an SSH tunnel is somebody's work.
                tunnels = self.sockets("sshd") if tunnels is None else tunnels
                if peer not in tunnels:
                    continue
            if not SYSTEM.match(self._owner(listener)):
                return True
        return False

    def sockets(self, name: str) -> set[str]:
        """Inodes of all sockets of processes whose name begins so."""
        found: set[str] = set()
        for pid in self.pids():
            if read("%s/%s/comm" % (self.proc, pid), 64).startswith(name):
                found.update(self._sockets(pid))
        return found

    def _sockets(self, pid: str) -> list[str]:
        links = []
        for fd in glob.glob("%s/%s/fd/*" % (self.proc, pid)):
            try:
                links.append(os.readlink(fd))
            except OSError:
                continue
        return [link[8:-1] for link in links if link.startswith("socket:[")]

    def _owner(self, inode: str) -> str:
        if inode not in self._names:
            names: dict[str, str] = {}
            for pid in self.pids():
                name = read("%s/%s/comm" % (self.proc, pid), 64).strip()
                names.update((each, name) for each in self._sockets(pid))
            self._names = names
            self._names.setdefault(inode, "")
        return self._names[inode]

    def nvidia_devices(self) -> int:
        """GPUs on the PCI bus, for machines without a driver."""
        devices = [os.path.dirname(path) for path in glob.glob(self.sys + "/bus/pci/devices/*/vendor")]
        return sum(
            read(each + "/vendor").strip() == "0x10de" and read(each + "/class")[:6] in ("0x0300", "0x0302")
            for each in devices
        )

    def find_device(self, serials: list[str]) -> str | None:
        """The block device with one of these serial numbers: by its link, else by what the kernel says of it."""
        for serial in serials:
            for link in sorted(glob.glob("%s/disk/by-id/*[-_]%s" % (self.dev, glob.escape(serial)))):
                return os.path.realpath(link)
        for block in glob.glob(self.sys + "/block/*"):
            if {read(block + "/serial").strip(), read(block + "/device/serial").strip()} & set(serials):
                return os.path.join(self.dev, os.path.basename(block))
        return None

    def gpu_holders(self) -> list[str]:
        """Processes that have an NVIDIA GPU open, told by the kernel: also where the driver's own tool fails."""
        found = []
        for pid in self.pids():
            for link in glob.glob("%s/%s/fd/*" % (self.proc, pid)):
                try:
                    if re.match(r"/dev/nvidia\d+$", os.readlink(link)):
                        found.append(pid)
                        break
                except OSError:
                    continue
        return found

    def holders(self, folder: str) -> list[int]:
        """Processes that have something open below the folder, ourselves left out."""
        found = []
        for pid in self.pids():
            base = "%s/%s/" % (self.proc, pid)
            for link in [base + "cwd", base + "root", base + "exe"] + glob.glob(base + "fd/*"):
                try:
                    target = os.readlink(link)
                except OSError:
                    continue
                if (target + "/").startswith(folder + "/") and int(pid) != os.getpid():
                    found.append(int(pid))
                    break
        return found


# --- the agent --------------------------------------------------------------------------------------------------------


class Base:
    """Configuration, paths, commands, problems and log, for all parts."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.root = str(config.get("root", "/"))
        self.machine = Machine(*(config.get(key, "/" + key) for key in ("proc", "sys", "dev")))
        self.problems: dict[str, str] = {}
        self.stopping = threading.Event()

    def path(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def seconds(self, name: str, default: float) -> float:
        return float(self.config.get(name, default))

    def log(self, text: str) -> None:
        print(text.replace(str(self.config.get("token") or "\0"), "***"), file=sys.stderr, flush=True)

    def problem(self, what: str, text: str = "") -> None:
        """Remember what does not work; without a text it works again."""
        if self.problems.get(what, "") == text:
            return
        self.problems.pop(what, None)
        if text:
            self.problems[what] = text
            self.log("%s: %s" % (what, text))

    def run(self, *argv: str, limit: float = 60.0, **more: Any) -> tuple[int, str]:
        """Exit status and output of a command, which the configuration may replace. Raises Problem: it did not end."""
        name = argv[0]
        replaced: list[str] = list(self.config.get("commands", {}).get(name, [name]))
        try:
            child = subprocess.Popen(
                replaced + list(argv[1:]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                **more,
            )
            out, errors = child.communicate(timeout=limit)
        except FileNotFoundError:
            return 127, "%s is not installed" % name
        except subprocess.TimeoutExpired:
            # Not waited for here: a process that hangs in the kernel does not even end by this.
            child.kill()
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
            threading.Thread(target=child.wait, daemon=True).start()
            raise Problem("%s did not end in %d s" % (name, limit)) from None
        except OSError as error:
            raise Problem("%s: %s" % (name, type(error).__name__)) from None
        text = out.decode("utf-8", "replace")
        return child.returncode, text if not child.returncode else text + errors.decode("utf-8", "replace")

    def must(self, *argv: str, **more: Any) -> str:
        """The output of a command that has to succeed. Raises Problem."""
        status, text = self.run(*argv, **more)
        if status:
            raise Problem("%s ended with %d: %s" % (argv[0], status, " ".join(text.split())[-200:]))
        return text


class Cache(Base):
    """The cache's volume or folder, its mounts, Docker's data, and the copy in an object store."""

    fetch: Callable[[], dict[str, Any]]
    """Keys of the object store from the API."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.spec: dict[str, Any] = config.get("cache") or {}
        volume = self.spec.get("volume") or {}
        self.serials = [str(each) for each in volume.get("serials") or ()]
        self.folder = str(volume["path"]) if volume.get("kind") == "directory" else self.path(CACHE)
        self.binds = bool(self.serials) or not volume
        self.told_attached_at: float | None = None
        self.mounted: list[str] = []
        self.in_use = False
        self.seen_before = False
        """Whether the volume was here on an earlier boot: then nobody has to attach it first."""

    # --- in ---

    def bring(self) -> None:
        """Make the cache usable. Raises Problem."""
        if self.serials:
            self._mount(self._device())
        os.makedirs(self.folder + "/files", exist_ok=True)
        self.in_use = True
        if self.spec.get("object_store"):
            self._guarded("object store", self.pull)
        for target in self.spec.get("mounts", ()):
            self._guarded("cache " + target, self._bind, target)
        if self.spec.get("docker"):
            self._guarded("docker", self._docker)

    def _guarded(self, what: str, do: Callable[..., None], *args: Any) -> None:
        try:
            do(*args)
            self.problem(what)
        except (Problem, OSError, ValueError) as error:
            self.problem(what, str(error) or type(error).__name__)

    def _device(self) -> str:
        """The volume's device. It may be attached long after the boot: the time counts from when we hear of that."""
        wait, begun = self.seconds("volume_wait_seconds", 120), time.monotonic()
        longest = wait if self.seen_before else self.seconds("volume_attach_seconds", 900)
        while True:
            device = self.machine.find_device(self.serials)
            if device is not None:
                return device
            now = time.monotonic()
            told = self.told_attached_at
            if now - begun > longest or (told is not None and now - max(told, begun) > wait):
                raise Problem("the volume %s did not appear" % self.serials[0])
            if self.stopping.wait(2.0):
                raise Problem("stopped while waiting for the volume")

    def _mount(self, device: str) -> None:
        if any(line.split()[1] == self.folder for line in read(self.machine.proc + "/mounts").splitlines()):
            return
        status, text = self.run("blkid", "-p", "-o", "export", device)
        kind = dict(line.split("=", 1) for line in text.splitlines() if "=" in line).get("TYPE", "")
        if status == 2 and not text.strip():
            if not is_blank(device):
                raise Problem("%s holds something that is no file system; it is left alone" % device)
            self.must("mkfs.ext4", "-q", "-m", "0", "-L", "gpulease", device, limit=600)
        elif status or kind not in ("ext4", "xfs"):
            raise Problem("%s holds %s, which is left alone" % (device, kind or "something unclear"))
        os.makedirs(self.folder, exist_ok=True)
        self.must("mount", "-o", "noatime,nofail", device, self.folder, limit=300)

    def _bind(self, target: str) -> None:
        """Put the cache's directory in the target's place; what was there is copied in first, once."""
        source, place = self.folder + "/files" + target, self.path(target)
        if not os.path.isdir(source):
            partial = self.folder + "/.incoming"
            shutil.rmtree(partial, ignore_errors=True)
            if os.path.isdir(place) and not os.path.islink(place) and os.listdir(place):
                self.must("cp", "-a", place, partial, limit=3600)
            else:
                os.makedirs(partial)
            os.makedirs(os.path.dirname(source), exist_ok=True)
            os.rename(partial, source)
        if self.binds and os.geteuid() == 0:
            os.makedirs(place, exist_ok=True)
            if not os.path.samefile(source, place):
                self.must("mount", "--bind", source, place)
        elif not os.path.islink(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if os.path.lexists(place):
                os.rename(place, place + ".without-cache")
            os.symlink(source, place)
        self.mounted.append(target)

    def _docker(self) -> None:
        """Docker's data in the cache. On later boots it starts when the cache is there."""
        file = self.path("/etc/docker/daemon.json")
        settings = json.loads(read(file) or "{}")
        if not isinstance(settings, dict):
            raise Problem("%s is no JSON object; docker is left alone" % file)
        wanted = dict(settings, **{"data-root": self.folder + "/docker"})
        wanted["features"] = dict(settings.get("features") or {}, **{"containerd-snapshotter": False})
        self.run("systemctl", "stop", "docker.socket", "docker", limit=120)
        os.makedirs(self.folder + "/docker", exist_ok=True)
        write(file, json.dumps(wanted, indent=1) + "\n")
        write(self.path("/etc/systemd/system/docker.service.d/gpulease.conf"), DOCKER_WAITS % READY_FLAG)
        self.mounted.append("docker")
        self.start_docker()

    def start_docker(self) -> None:
        """Also where the cache did not come: then its data is on the machine's own disk, and nothing is held up."""
        write(self.path(READY_FLAG), "")
        self.run("systemctl", "daemon-reload")
        status, text = self.run("systemctl", "start", "docker", limit=120)
        if status and "not found" not in text and status != 127:
            raise Problem("docker does not start: " + text[-200:])

    # --- the object store ---

    def _rclone(self, *argv: str, limit: float) -> tuple[int, str]:
        keys = self.path(RUN + "/cache-credentials.json")
        known = json.loads(read(keys) or "{}")
        if known.get("until", 0) < time.time() + limit:
            try:
                known = self.fetch()
                known["until"] = time.time() + float(known.get("expires_in_seconds") or 86400)
                write(keys, json.dumps(known), 0o600)
            except Problem:
                if not known:
                    raise
        env = dict(os.environ, RCLONE_CONFIG="/dev/null", RCLONE_CONFIG_CACHE_TYPE="s3")
        env.pop("AWS_CA_BUNDLE", None)
        for name in ("provider", "endpoint", "region", "access_key_id", "secret_access_key", "session_token"):
            if known.get(name):
                env["RCLONE_CONFIG_CACHE_" + name.upper()] = str(known[name])
        env["RCLONE_CONFIG_CACHE_ENV_AUTH"] = "false" if known.get("access_key_id") else "true"
        remote = "cache:" + "/".join(part for part in (known["bucket"], known.get("prefix")) if part)
        if self.run("rclone", "version")[0] == 127:
            self.run("apt-get", "install", "-y", "-q", "rclone", limit=180)
        words = [word.replace("REMOTE", remote, 1) if word.startswith("REMOTE") else word for word in argv]
        common = ["--links", "--s3-no-check-bucket", "--contimeout", "15s", "--timeout", "2m", "--retries", "3"]
        return self.run("rclone", *words, *common, limit=limit, env=env)

    def pull(self) -> None:
        """Copy in what is not here yet. Only a set that was saved whole, which its marker says, is taken."""
        status, text = self._rclone("cat", "REMOTE/" + MARKER, limit=120)
        if status in (3, 4) or (not status and not text.strip()):
            return
        if status:
            raise Problem("its content could not be looked up (rclone %d): %s" % (status, _last(text)))
        limit = self.seconds("pull_seconds", 1200)
        argv = ["copy", "REMOTE/files", self.folder + "/files", "--fast-list", "--checksum", "--ignore-existing"]
        argv += ["--transfers", "16", "--checkers", "32", "--max-duration", "%ds" % limit]
        status, text = self._rclone(*argv, limit=limit + 120)
        if status:
            raise Problem("its content was not copied in whole (rclone %d): %s" % (status, _last(text)))

    def save(self, limit: float, whole: bool = False) -> None:
        """Copy out what is new, then say that the set is whole. Nothing is ever deleted there."""
        files, end = self.folder + "/files", time.monotonic() + limit
        skip = ["--exclude", "**/*.lock", "--exclude", "**/*.incomplete"]
        argv = ["copy", files, "REMOTE/files", "--checksum", "--s3-chunk-size", "64M", "--s3-upload-concurrency", "8"]
        status, text = self._rclone(*argv, *skip, "--max-duration", "%ds" % limit, limit=limit + 5)
        if not status and whole:
            status, text = self._rclone(
                "check", files, "REMOTE/files", "--one-way", *skip, limit=max(5.0, end - time.monotonic())
            )
        if status:
            raise Problem("it was not saved whole (rclone %d): %s" % (status, _last(text)))
        marker = self.path(RUN + "/" + MARKER)
        write(marker, json.dumps({"saved_at": int(time.time()), "lease": self.config.get("lease_id")}))
        status, text = self._rclone("copyto", marker, "REMOTE/" + MARKER, limit=60)
        if status:
            raise Problem("its marker was not saved (rclone %d): %s" % (status, _last(text)))

    # --- out ---

    def put_away(self, limit: float) -> bool:
        """Save, let go, unmount. Whether nothing of the cache is in use any more."""
        end = time.monotonic() + limit
        if not self.in_use:
            return True
        if self.spec.get("object_store"):
            self._guarded("object store", self.save, max(5.0, limit - 30), True)
        try:
            os.unlink(self.path(READY_FLAG))
        except OSError:
            pass
        if "docker" in self.mounted:
            self._guarded("docker", lambda: void(self.run("systemctl", "stop", "docker.socket", "docker", limit=30)))
        os.sync()
        for target in [each for each in reversed(self.mounted) if each != "docker"]:
            place = self.path(target)
            if os.path.islink(place):
                os.unlink(place)
                if os.path.lexists(place + ".without-cache"):
                    os.rename(place + ".without-cache", place)
            else:
                self._unmount(place, end)
            self.mounted.remove(target)
        self.mounted = []
        if self.serials:
            self._unmount(self.folder, end)
        os.sync()
        self.in_use = False
        return True

    def _unmount(self, place: str, end: float) -> None:
        """Unmount; who holds it is asked to end, then made to. As a last resort it is only taken out of the tree."""
        for sign in (0, signal.SIGTERM, signal.SIGKILL):
            for pid in self.machine.holders(place) if sign else []:
                try:
                    os.kill(pid, sign)
                except OSError:
                    continue
            patience = min(end, time.monotonic() + (10 if sign else 0))
            while True:
                status, text = self.run("umount", place)
                if not status or "not mounted" in text:
                    return
                if time.monotonic() >= patience:
                    break
                time.sleep(0.5)
        os.sync()
        self.must("umount", "--lazy", place)
        self.problem("unmount", "%s was still in use" % place)


def void(_: object) -> None:
    """Throw a value away."""


def _last(text: str) -> str:
    return " ".join(text.split())[-200:]


def is_blank(device: str) -> bool:
    """Whether the first and the last MiB hold nothing but zeros, and so do samples of all that is between.

    They are where file systems keep copies of what describes them: ext4 in its groups of 128 MiB, XFS at quarters.
    """
    with open(device, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        between = [n * 128 * MIB for n in range(1, 32)] + [size * n // 64 for n in range(1, 64)]
        for start in [0, size - MIB] + [at - MIB // 2 for at in between]:
            # A disk, other than a file, has no place behind its end.
            file.seek(max(0, min(start, size - MIB)))
            if file.read(MIB).strip(b"\0"):
                return False
    return size > 0


class Agent(Cache):
    """Looks, reports and works. The main thread looks and reports; what takes long is done by one worker."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.fetch = self._credentials
        self.seen: dict[str, float] = {}
        self.gpus: int | None = None
        self.cards: list[dict[str, Any]] = []
        self.untold = False
        # Where a folder stands for a machine nobody's notices are for it.
        self.ec2 = str(config.get("ec2", "169.254.169.254" if self.root == "/" else ""))
        self.ready = self.flushed = False
        self.flush_wanted = self.saving = False
        self._flush_end: float | None = None
        """Until when the API waits for that at most; None = it does not say."""
        self.interval = self.seconds("interval_seconds", 60)
        self.jobs: queue.Queue[Callable[[], None]] = queue.Queue()
        self.wake = threading.Event()
        self.failures = 0
        self.state: dict[str, Any] = {}
        self._cpu: dict[str, float] = {}
        self._gpu_looked_at = self._touched = 0.0
        self._gpu_pause_until = self._notice_pause_until = 0.0
        self._told_quiet = True
        self._told_to_start = threading.Event()

    # --- signals ---

    def look(self, now: float) -> None:
        """Note which signals are there now."""
        probes: list[tuple[str, Callable[[], bool]]] = [
            ("ssh", self.machine.has_ssh_session),
            ("connections", lambda: self.machine.has_connection(int(self.config.get("ssh_port", 22)))),
            ("busy", self._busy),
        ]
        if now - self._gpu_looked_at >= self.seconds("gpu_every_seconds", 20) and now >= self._gpu_pause_until:
            probes.append(("gpu", lambda: self._gpu(now)))
        for name, probe in probes:
            try:
                if probe():
                    self.seen[name] = now
                self.problem("signal " + name)
            except (Problem, OSError, ValueError) as error:
                self.problem("signal " + name, "cannot be read: %s" % (str(error) or type(error).__name__))
        if (
            self.ec2
            and now >= self._notice_pause_until
            and read(self.machine.sys + "/class/dmi/id/sys_vendor")[:10] == "Amazon EC2"
        ):
            self._guarded("notices of EC2", self._look_for_notice, now)

    def _look_for_notice(self, now: float) -> None:
        """EC2 says two minutes before when it takes a spot machine back: then what is new is saved at once, and told.

        https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
        """
        self._notice_pause_until = now + LONGEST_PAUSE
        token = self._ask_ec2("PUT", "api/token", **{"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        text = self._ask_ec2("GET", "meta-data/spot/instance-action", **{"X-aws-ec2-metadata-token": token})
        self._notice_pause_until = 0.0
        notice = json.loads(text or "{}")
        at = re.sub(r"[^0-9TZ:-]", "", str(notice.get("time", "")))[:20]
        if at and "spot" not in self.problems:
            self.problem("spot", "EC2 takes this machine back at %s" % at)
            self.jobs.put(self._save_now)
            self.wake.set()

    def _ask_ec2(self, method: str, path: str, **headers: str) -> str:
        """What the machine's own metadata service answers; empty = it has nothing there. Raises Problem, OSError."""
        connection = http.client.HTTPConnection(self.ec2, timeout=2)
        try:
            connection.request(method, "/latest/" + path, headers=headers)
            answer = connection.getresponse()
            text = answer.read(4096).decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise Problem(type(error).__name__) from None
        finally:
            connection.close()
        if answer.status not in (200, 404):
            raise Problem("answer %d" % answer.status)
        return text if answer.status == 200 else ""

    def count_gpus(self) -> int:
        """Read the GPUs. Without a driver those on the PCI bus count; a driver that shows none has none.

        Raises Problem: it did not end.
        """
        query = "--query-gpu=name,memory.total,memory.used,utilization.gpu"
        tool = str(self.config.get("nvidia_smi") or "nvidia-smi")
        status, text = self.run(tool, query, "--format=csv,noheader,nounits", limit=30)
        if status == 127:
            self.cards, self.gpus = [], self.machine.nvidia_devices()
        else:
            self.cards = [] if status else parse_gpus(text)
            self.gpus = len(self.cards)
            self.untold = re.search(r",\s*\[[^,\]]*\]\s*$", text, re.M) is not None
        self.problem("nvidia-smi", "ended with %d: %s" % (status, _last(text)) if status not in (0, 127) else "")
        return self.gpus

    def _gpu(self, now: float) -> bool:
        """Whether a GPU computes, or a process that holds one does."""
        elapsed, self._gpu_looked_at = now - self._gpu_looked_at, now
        pids: list[str] = []
        try:
            self.count_gpus()
            if any(card["percent"] >= BUSY_PERCENT for card in self.cards):
                return True
            if self.cards:
                tool = str(self.config.get("nvidia_smi") or "nvidia-smi")
                status, text = self.run(tool, "--query-compute-apps=pid", "--format=csv,noheader", limit=30)
                pids = [] if status else [line.strip() for line in text.splitlines() if line.strip().isdigit()]
        except Problem as error:
            # A driver that hangs is not asked again and again: each question leaves a process behind.
            self._gpu_pause_until = now + LONGEST_PAUSE
            self.problem("nvidia-smi", str(error))
        if pids and self.untold:
            # A GPU divided by MIG does not tell how busy it is: then whoever holds it counts.
            return True
        # A tool that fails, as after an upgrade of the driver below running work, does not make that work idle.
        pids = pids or self.machine.gpu_holders()
        before, self._cpu = self._cpu, {pid: self.machine.cpu_seconds(pid) for pid in pids}
        return any(self._cpu[pid] - before[pid] > BUSY_CORES * elapsed for pid in pids if pid in before)

    def _busy(self) -> bool:
        """Whether a command under `gpulease-busy` runs, or the touch file was touched since the last look."""
        found = False
        for path in glob.glob(self.path(RUN + "/busy/*")):
            pid, _, started = read_plain(path).strip().partition(" ")
            if pid.isdigit() and started and self.machine.runs(pid, started):
                found = True
            else:
                os.unlink(path)
        try:
            touched = os.stat(self.path(RUN + "/touch")).st_mtime
        except OSError:
            return found
        before, self._touched = self._touched, touched
        return found or (before > 0 and touched != before)

    # --- reports ---

    def report(self, now: float) -> dict[str, Any]:
        """What is told. Each signal by how long ago it was seen: no clock but ours has a part in it."""
        keys = [read(path).strip()[:800] for path in sorted(glob.glob(self.path("/etc/ssh/ssh_host_*_key.pub")))]
        script = self.state.get("script", {})
        # In a demo the clock of the API runs so many times as fast.
        speed = self.seconds("clock_speed", 1)
        return {
            "agent_version": VERSION,
            "boot_id": read(self.machine.proc + "/sys/kernel/random/boot_id").strip(),
            "ready": self.ready,
            "gpus": self.gpus,
            "gpu_models": [card["name"][:80] for card in self.cards][:16],
            "gpu_percent": [card["percent"] for card in self.cards][:16],
            "gpu_memory_mib": [card["memory_mib"] for card in self.cards][:16],
            "gpu_memory_used_mib": [card["used_mib"] for card in self.cards][:16],
            "seen_seconds_ago": {name: round(max(0.0, now - at) * speed, 1) for name, at in self.seen.items()},
            "host_keys": [key for key in keys if key][:5],
            "mounted": self.mounted[:21],
            "problems": [("%s: %s" % item)[:300] for item in self.problems.items()][:MAX_PROBLEMS],
            "start_script": script.get("state", ""),
            "start_script_exit": script.get("exit"),
            "saving": self.saving,
            "flushed": self.flushed,
        }

    def send(self) -> float:
        """Report once. Returns the seconds until the next report."""
        now = time.monotonic()
        body = self.report(now)
        try:
            status, answer, retry_after = self.call("POST", "/v1/agent/heartbeat", body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return self._back_off("no answer: %s" % type(error).__name__)
        if status in (401, 410):
            self.failures += 1
            self.log("the token is no longer valid; asking again in an hour")
            return self.seconds("dead_seconds", 3600)
        if status != 200:
            return self._back_off("answer %d" % status, retry_after)
        if self.failures:
            self.log("reports are taken again")
        self.failures = 0
        self._told_quiet = not any(now - at < self.interval for at in self.seen.values())
        self._heed(answer)
        return self.interval

    def _back_off(self, why: str, at_least: float = 0.0) -> float:
        pause = self.seconds("backoff_seconds", 5) * 2.0 ** min(self.failures, 12)
        pause = max(min(pause, LONGEST_PAUSE) * random.uniform(0.5, 1.0), min(at_least, LONGEST_PAUSE))
        self.failures += 1
        self.log("report not taken (%s); again in %d s" % (why, pause))
        return pause

    def _heed(self, answer: dict[str, Any]) -> None:
        wanted = answer.get("interval_seconds")
        if isinstance(wanted, (int, float)):
            self.interval = max(
                self.seconds("least_seconds", 5), min(float(wanted), self.seconds("most_seconds", 3600))
            )
        if answer.get("volume_attached") and self.told_attached_at is None:
            self.told_attached_at = time.monotonic()
        if answer.get("start"):
            self._told_to_start.set()
        flush = answer.get("flush") is True
        if flush and not self.flush_wanted:
            left = answer.get("flush_seconds")
            speed = self.seconds("clock_speed", 1)
            self._flush_end = time.monotonic() + left / speed if isinstance(left, (int, float)) else None
            # Said with the next report, soon: without it the machine is not waited for much longer.
            self.saving = True
            self.jobs.put(self.flush)
            self.wake.set()
        elif self.flush_wanted and not flush and self.flushed:
            self.jobs.put(self.fill)
        self.flush_wanted = flush

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any], float]:
        """Status, JSON answer and Retry-After. Redirects are not followed: the token goes to one place only."""
        url = urllib.parse.urlsplit(str(self.config["url"]))
        if url.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                url.netloc, timeout=15, context=ssl.create_default_context()
            )
        elif url.hostname in ("127.0.0.1", "localhost", "::1"):
            connection = http.client.HTTPConnection(url.netloc, timeout=15)
        else:
            raise ValueError("the address must be https")
        headers = {"Authorization": "Bearer %s" % self.config["token"], "Content-Type": "application/json"}
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, url.path.rstrip("/") + path, body=data, headers=headers)
            got = connection.getresponse()
            text = got.read(65536)
            after = got.getheader("Retry-After") or ""
            answer = json.loads(text) if text and got.status == 200 else {}
            return got.status, answer if isinstance(answer, dict) else {}, float(after) if after.isdigit() else 0.0
        finally:
            connection.close()

    def _credentials(self) -> dict[str, Any]:
        try:
            status, answer, _ = self.call("GET", "/v1/agent/cache-credentials")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Problem("no keys: %s" % type(error).__name__) from None
        if status != 200 or not answer.get("bucket"):
            raise Problem("no keys: answer %d" % status)
        return answer

    # --- work ---

    def prepare(self) -> None:
        """From boot to ready."""
        expected, end = (
            int(self.config.get("gpus_expected", 0)),
            time.monotonic() + self.seconds("gpu_wait_seconds", 120),
        )
        while True:
            try:
                counted = self.count_gpus()
                self.problem("GPUs")
            except Problem as error:
                counted, self.gpus = 0, 0
                self.problem("GPUs", str(error))
            if counted >= expected or time.monotonic() >= end or self.stopping.wait(3.0):
                break
        if counted < expected:
            self.problem("GPUs", "%d of %d are there; nothing is started" % (counted, expected))
        else:
            self.fill()
            self._await_word()
            self._start_script()
            self._settle(self.seconds("script_grace_seconds", 5))
        self.ready = True
        self.wake.set()

    def _await_word(self) -> None:
        """Where the machine may still be rebooted to join its network, a script begins only after that."""
        end = time.monotonic() + self.seconds("word_seconds", 900)
        while self.config.get("start_when_told") and not self.state.get("script") and time.monotonic() < end:
            if self._told_to_start.wait(0.5) or self.stopping.is_set():
                return

    def fill(self) -> None:
        """The cache, if there is one; what does not work is told and holds nothing up."""
        self.flushed = False
        if self.spec:
            self.seen_before = bool(self.state.get("cache"))
            self._guarded("cache", self.bring)
            if self.in_use and not self.seen_before:
                self._keep(cache=True)
            if "cache" in self.problems and self.spec.get("docker"):
                self._guarded("docker", self.start_docker)
        self.wake.set()

    def flush(self) -> None:
        """Save and let go of the cache, then say so."""
        limit = self.seconds("flush_seconds", 80)
        if self._flush_end is not None:
            limit = max(20.0, self._flush_end - time.monotonic() - 15)
        try:
            self.flushed = self.put_away(limit)
        except (Problem, OSError) as error:
            self.problem("flush", str(error))
        finally:
            self.saving = False
        self.wake.set()

    def _save(self) -> None:
        if self.in_use:
            self._guarded("object store", self.save, self.seconds("pull_seconds", 1200))

    def _save_now(self) -> None:
        os.sync()
        if self.in_use and self.spec.get("object_store"):
            self._guarded("object store", self.save, self.seconds("flush_seconds", 80))

    def _start_script(self) -> None:
        """Run the start script unless it was begun before, on this boot or an earlier one."""
        script = str(self.config.get("start_script") or "")
        if not script or self.state.get("script"):
            return
        file, log, end = self.path(script), self.path(SCRIPT_LOG), self.path(STATE + ".exit")
        with open(file, "rb") as opened:
            plain = opened.read(2) != b"#!"
        self._keep(script={"state": "running"})
        command = '%s"$1" >"$2" 2>&1; echo $? >"$3.new"; mv "$3.new" "$3"' % ("/bin/bash " if plain else "")
        env = {"HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
        env["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin"
        os.makedirs(os.path.dirname(log), exist_ok=True)
        child = subprocess.Popen(
            ["/bin/sh", "-c", command, "sh", file, log, end],
            stdin=subprocess.DEVNULL,
            env=env,
            cwd="/",
            start_new_session=True,
        )
        threading.Thread(target=child.wait, daemon=True).start()
        self._keep(script={"state": "running", "pid": child.pid, "started": self.machine.started(str(child.pid))})

    def _settle(self, seconds: float) -> None:
        """A script that fails at once belongs to a boot that failed: wait for it a little."""
        end = time.monotonic() + seconds
        while self.watch_script() == "running" and time.monotonic() < end and not self.stopping.wait(0.2):
            continue

    def watch_script(self) -> str:
        """How far the script is; notes its end."""
        script = self.state.get("script") or {}
        if script.get("state") != "running":
            return str(script.get("state", ""))
        text = read(self.path(STATE + ".exit")).strip()
        if text.isdigit():
            self._keep(script={"state": "failed" if int(text) else "done", "exit": int(text)})
            self.wake.set()
        elif "pid" in script and self.machine.started(str(script["pid"])) != script["started"]:
            if not read(self.path(STATE + ".exit")).strip():
                self._keep(script={"state": "failed", "exit": None})
                self.problem("start script", "it was cut off")
            self.wake.set()
        return str(self.state["script"]["state"])

    def _keep(self, **facts: Any) -> None:
        self.state.update(facts)
        write(self.path(STATE), json.dumps(self.state), 0o600)

    # --- the loop ---

    def begin(self) -> None:
        """What is known from earlier, and places for the user's words."""
        try:
            self.state = json.loads(read(self.path(STATE)) or "{}")
        except ValueError:
            # Cut off while it was written, which only a broken disk does. Better no script than one that runs twice.
            self.state = {"script": {"state": "failed", "exit": None}}
        script = self.state.get("script") or {}
        if script.get("state") == "running" and "pid" not in script:
            self._keep(script={"state": "failed", "exit": None})
            self.problem("start script", "it was cut off")
        os.makedirs(self.path(RUN + "/busy"), exist_ok=True)
        os.chmod(self.path(RUN + "/busy"), stat.S_ISVTX | 0o777)
        touch = self.path(RUN + "/touch")
        if not os.path.exists(touch):
            write(touch, "", 0o666)
        self._touched = os.stat(touch).st_mtime

    def work(self) -> None:
        """The worker: one job after the other."""
        save_every = self.seconds("save_every_seconds", 900)
        next_save = time.monotonic() + save_every
        while not self.stopping.is_set():
            try:
                job = self.jobs.get(timeout=1.0)
            except queue.Empty:
                if not self.spec.get("object_store") or time.monotonic() < next_save:
                    continue
                job = self._save
            try:
                job()
            except Exception as error:
                # A job that nobody foresaw must not end the reports.
                self.problem("agent", "%s: %s" % (type(error).__name__, error))
            if job == self._save:
                next_save = time.monotonic() + save_every

    def loop(self) -> None:
        """Look and report until told to stop."""
        self.begin()
        self.jobs.put(self.prepare)
        worker = threading.Thread(target=self.work, daemon=True)
        worker.start()
        every, least = self.seconds("look_every_seconds", 10), self.seconds("least_seconds", 5)
        next_look = next_report = sent_at = time.monotonic()
        news = False
        while not self.stopping.is_set():
            now = time.monotonic()
            if now >= next_look:
                self.look(now)
                self.watch_script()
                next_look = now + every
            news = news or self.wake.is_set() or (self._told_quiet and any(at >= now for at in self.seen.values()))
            self.wake.clear()
            if news and not self.failures:
                next_report = min(next_report, sent_at + least)
            if now >= next_report:
                news = False
                sent_at = time.monotonic()
                next_report = sent_at + max(self.send(), least)
            self.wake.wait(max(0.05, min(next_look, next_report) - time.monotonic()))
        if self.spec and self._is_shutdown():
            self.put_away(self.seconds("flush_seconds", 80))

    def _is_shutdown(self) -> bool:
        """Whether the machine goes down; where only this service is stopped the cache stays as it is."""
        try:
            return bool(self.config.get("flush_on_stop")) or "stopping" in self.run("systemctl", "is-system-running")[1]
        except Problem:
            return False


def read_plain(path: str) -> str:
    """A small file in a folder that everybody may write to: no link and no pipe is followed or waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(fd, 64).decode("ascii", "replace") if stat.S_ISREG(os.fstat(fd).st_mode) else ""
    finally:
        os.close(fd)


def install() -> None:
    """Once, by cloud-init: the service and the user's command."""
    write("/etc/systemd/system/gpulease-agent.service", UNIT % PROGRAM)
    write("/usr/local/bin/gpulease-busy", BUSY % RUN, 0o755)
    for argv in (["daemon-reload"], ["enable", "gpulease-agent"], ["start", "--no-block", "gpulease-agent"]):
        subprocess.run(["systemctl", *argv], check=True)


def main(argv: list[str]) -> int:
    """`agent.py [CONFIG]` runs, `agent.py install` installs the service."""
    if argv[1:] == ["install"]:
        install()
        return 0
    with open(argv[1] if len(argv) > 1 else CONFIG, encoding="utf-8") as file:
        agent = Agent(json.load(file))

    def stop(*_: object) -> None:
        agent.stopping.set()
        agent.wake.set()

    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, stop)
    agent.loop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
