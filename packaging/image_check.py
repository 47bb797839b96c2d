"""Builds the container image on this machine and runs it: `make image-test`.

Nothing is pulled from a registry: mmdebstrap makes the base image from Debian's packages (kept for the next run),
buildah builds packaging/Containerfile on it, podman runs the result in a storage of its own, which is deleted at the
end. It needs root, and Debian's packages in `PROGRAMS`. hadolint, shellcheck and `systemd-analyze verify` check the
files; podman-compose starts the three nodes of packaging/compose.yaml, whose ports must be free.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from release_check import ROOT, CheckFailed, run, tools

PACKAGING: Final = ROOT / "packaging"
TOOLS: Final = ROOT / "requirements" / "image-test.txt"
USER_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trioka"
CACHE: Final = Path(os.environ.get("TRIOKA_CACHE") or USER_CACHE) / "image"
SUITE: Final = "bookworm"
BASE: Final = "localhost/trioka-base"
IMAGE: Final = "localhost/trioka"
PYTHON: Final = ("ca-certificates", "python3", "python3-venv", "python-is-python3")
# Program, and the package of Debian that has it.
PROGRAMS: Final = {
    "mmdebstrap": "mmdebstrap",
    "buildah": "buildah",
    "podman": "podman",
    "runc": "runc",
    "conmon": "conmon",
    "iptables": "iptables",
    "kcat": "kcat",
    "systemd-analyze": "systemd",
}
NETWORK_PROGRAMS: Final = ("netavark", "aardvark-dns")  # of the compose file; they are outside of the PATH
# An ordinary user of containers has higher limits; a machine that is itself a container may not raise them.
LIMITS: Final = ("--ulimit", "nofile=8192:8192", "--ulimit", "nproc=4096:4096")
HOST_FILES: Final = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")  # a mirror, a proxy's certificate
NODE_PORTS: Final = (19092, 29092, 39092)
READY_S: Final = 120.0
STOP_S: Final = 60
LOOK_S: Final = 0.2
SHOWN_LINES: Final = 20


def missing() -> list[str]:
    """The packages of Debian that have to be installed first."""
    found = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    found |= {name for name in NETWORK_PROGRAMS if not Path("/usr/lib/podman", name).exists()}
    return sorted(found)


class Podman:
    """podman and buildah with a storage of their own. `wrapper` is a podman for podman-compose."""

    def __init__(self, folder: Path) -> None:
        storage = ["--root", str(folder / "root"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]
        self._buildah = ["buildah", *storage]
        self._podman = ["podman", *storage, "--runtime", "runc", "--cgroup-manager", "cgroupfs"]
        self.wrapper = folder / "bin" / "podman"
        self.wrapper.parent.mkdir()
        words, limits = " ".join(self._podman[1:]), " ".join(LIMITS)
        first = f'case "$1" in run|create) word=$1; shift; set -- "$word" {limits} "$@";; esac'
        self.wrapper.write_text(f'#!/bin/sh\n{first}\nexec {shutil.which("podman")} {words} "$@"\n')
        self.wrapper.chmod(0o755)

    def __call__(self, *words: object) -> str:
        return run([*self._podman, *words])

    def build(self) -> None:
        mounts = [word for file in HOST_FILES if Path(file).exists() for word in ("-v", f"{file}:{file}:ro")]
        words = ["--isolation", "chroot", "--network", "host", "--format", "docker", "--build-arg", f"BASE={BASE}"]
        run([*self._buildah, "bud", *words, *mounts, "-t", IMAGE, "-f", PACKAGING / "Containerfile", ROOT])

    def inspect(self, name: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(self("inspect", name))
        return found[0]

    def logs(self, name: str) -> list[str]:
        return run([*self._podman, "logs", name], stderr=subprocess.STDOUT).splitlines()


def base_archive() -> Path:
    """A Debian with Python, as a tar file."""
    archive = CACHE / f"{SUITE}-{'-'.join(PYTHON)}.tar"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        new = archive.with_suffix(".new.tar")
        run(["mmdebstrap", "--variant=minbase", f"--include={','.join(PYTHON)}", SUITE, new])
        new.rename(archive)
    return archive


# -- the checks --------------------------------------------------------------------------------------------------------


def check_files(bin: Path, folder: Path) -> None:
    run([bin / "hadolint", PACKAGING / "Containerfile"])
    run([bin / "shellcheck", PACKAGING / "entrypoint.sh", ROOT / "gateway/proto/check.sh"])
    unit = folder / "trioka.service"  # the program must exist
    unit.write_text((PACKAGING / "trioka.service").read_text().replace("/opt/trioka/bin/trioka", sys.executable))
    found = run(["systemd-analyze", "verify", unit], stderr=subprocess.STDOUT)
    if "trioka.service" in found:
        raise CheckFailed(found)


def check_image(podman: Podman) -> None:
    config = podman.inspect(IMAGE)["Config"]
    wanted = {
        "User": "1000:1000",
        "Entrypoint": ["/usr/bin/tini", "--", "trioka-node"],
        "Volumes": {"/var/lib/trioka": {}},
        "StopSignal": "SIGTERM",
    }
    expect({key: config.get(key) for key in wanted}, wanted)


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise CheckFailed(f"found {found!r} instead of {wanted!r}")


def wait(is_done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + READY_S
    while not is_done():
        if time.monotonic() > until:
            raise CheckFailed(f"{what} took more than {READY_S:.0f} s")
        time.sleep(LOOK_S)


def events(podman: Podman, name: str) -> list[str]:
    """The events that a node has logged; a line that is not JSON is an error."""
    try:
        return [json.loads(line)["event"] for line in podman.logs(name)]
    except ValueError:
        raise CheckFailed("\n".join(["a line is not JSON:", *podman.logs(name)[-SHOWN_LINES:]])) from None


def wait_ready(podman: Podman, name: str, count: int = 1) -> None:
    """Until a node has been ready so often."""

    def is_ready() -> bool:
        if podman.inspect(name)["State"]["Status"] == "exited":
            raise CheckFailed("\n".join([f"{name} has ended", *podman.logs(name)[-SHOWN_LINES:]]))
        return events(podman, name).count("node.ready") >= count

    wait(is_ready, f"the start of {name}")


def free_ports(count: int) -> list[int]:
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports


def produce(port: int, lines: str) -> None:
    words = ["kcat", "-P", "-b", f"localhost:{port}", "-t", "orders", "-X", "acks=all"]
    run(words, stdin=lines)


def consume(port: int) -> str:
    return run(["kcat", "-C", "-b", f"localhost:{port}", "-t", "orders", "-e", "-q", "-o", "beginning"])


def check_node(podman: Podman) -> None:
    """One node in the network of this machine, started twice with the same volume."""
    port, controller, http = free_ports(3)
    settings = {
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port}",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@127.0.0.1:{controller}",
        "KAFKA_TRIOKA_HTTP_LISTENERS": f"127.0.0.1:{http}",
        "KAFKA_NUM_PARTITIONS": "3",
    }
    words = [word for key, value in settings.items() for word in ("-e", f"{key}={value}")]
    lockdown = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    words += ["--network", "host", "--log-driver", "k8s-file", "-v", "trioka-data:/var/lib/trioka", *LIMITS, *lockdown]
    podman("run", "-d", "--name", "node", *words, IMAGE)
    wait_ready(podman, "node")
    podman("healthcheck", "run", "node")
    expect(podman("exec", "node", "id", "-u").strip(), "1000")
    expect(podman("exec", "node", "cat", "/proc/1/comm").strip(), "tini")
    expect(podman("exec", "node", "trioka", "--version").split(",")[0].split()[0], "trioka")
    produce(port, "".join(f"order {number}\n" for number in range(100)))
    topics = json.loads(run(["kcat", "-L", "-J", "-b", f"localhost:{port}", "-t", "orders"]))["topics"]
    expect(len(topics[0]["partitions"]), 3)
    before = sorted(consume(port).splitlines())
    expect(len(before), 100)
    stop(podman, "node")
    podman("start", "node")
    wait_ready(podman, "node", 2)
    expect(sorted(consume(port).splitlines()), before)
    stop(podman, "node")
    if unexpected := {"bug.process", "log.recovered", "directory.not_closed"} & set(events(podman, "node")):
        raise CheckFailed(f"the node has logged {unexpected}")
    podman("rm", "node")
    podman("volume", "rm", "trioka-data")


def stop(podman: Podman, name: str) -> None:
    """By SIGTERM, to which the node answers with a clean end."""
    podman("stop", "--time", STOP_S, name)
    state = podman.inspect(name)["State"]
    expect((state["ExitCode"], events(podman, name)[-1]), (0, "broker.stopped"))


def check_wrong_setting(podman: Podman) -> None:
    podman("create", "--name", "wrong", "--network", "host", "-e", "KAFKA_NUM_PARTITIONS=x", *LIMITS, IMAGE)
    with suppress(CheckFailed):  # the exit code is the node's
        podman("start", "-a", "wrong")
    expect((podman.inspect("wrong")["State"]["ExitCode"], events(podman, "wrong")), (1, ["start.failed"]))
    podman("rm", "wrong")


@contextmanager
def composed(podman: Podman, bin: Path) -> Iterator[Callable[[int], str]]:
    """The three nodes of the compose file, and the function that names their containers."""
    command = [bin / "podman-compose", "--podman-path", podman.wrapper, "-p", "check", "-f", PACKAGING / "compose.yaml"]
    run([*command, "up", "-d", "--no-build"])
    try:
        yield lambda number: f"check_kafka-{number}_1"
    finally:
        run([*command, "down", "-v", "--timeout", STOP_S])


def check_compose(podman: Podman, bin: Path) -> None:
    with composed(podman, bin) as container:
        for number in (1, 2, 3):
            wait_ready(podman, container(number))
        produce(NODE_PORTS[0], "one\n")
        topics = json.loads(run(["kcat", "-L", "-J", "-b", f"localhost:{NODE_PORTS[1]}", "-t", "orders"]))["topics"]
        replicas = sorted(each["id"] for each in topics[0]["partitions"][0]["replicas"])
        expect(replicas, [1, 2, 3])
        stop(podman, container(2))
        produce(NODE_PORTS[2], "two\n")
        expect(consume(NODE_PORTS[0]), "one\ntwo\n")


def main() -> int:
    if absent := missing():
        print(f"needs packages: apt-get install --no-install-recommends {' '.join(absent)}", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("needs root: buildah's chroot isolation and podman's networks", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory(prefix="trioka-image-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        podman, bin = Podman(folder), tools(folder / "tools", TOOLS)
        steps: list[tuple[str, Callable[[], object]]] = [
            ("files (hadolint, shellcheck, systemd-analyze)", lambda: check_files(bin, folder)),
            ("base image (mmdebstrap)", lambda: podman("import", base_archive(), BASE)),
            ("build (buildah)", podman.build),
            ("user, entry point, volume", lambda: check_image(podman)),
            ("a node: kcat, health, restart, SIGTERM", lambda: check_node(podman)),
            ("a wrong setting", lambda: check_wrong_setting(podman)),
            ("three nodes (podman-compose)", lambda: check_compose(podman, bin)),
        ]
        try:
            for name, step in steps:
                started = time.monotonic()
                try:
                    step()
                except (CheckFailed, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"FAILED   {name}: {error}", flush=True)
                else:
                    print(f"passed   {name} ({time.monotonic() - started:.0f} s)", flush=True)
        finally:
            with suppress(CheckFailed):
                podman("rm", "--all", "--force", "--time", "10")
            with suppress(CheckFailed):
                podman("volume", "rm", "--all", "--force")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
