"""The network between the nodes of a chaos run, which can be cut, one way or both.

With namespaces, each node has a network stack of its own, joined to the others by a bridge. A direction is cut by
giving the sender a wrong hardware address for the receiver: its packets leave and no node receives them, as with a
broken switch, and this needs only `ip`. Clients are on the bridge, and can be cut off like a node.

Where namespaces are not allowed, nodes are on loopback and connect to each other through a proxy in front of each
listener. It finds the caller by the client id of the first request, and holds back the bytes of a direction that is
cut. Connections stay, and the bytes arrive when the cut is healed: late, as the packets of TCP do.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from trioka.cli.client.connection import ReservedPort
from trioka.cli.node.run import die_with_parent

Cut = tuple[int, int]  # from a node to a node

CLIENTS: Final = 0  # in a cut: all clients, which are no nodes
LISTENERS: Final = ("CLIENT", "REPLICATION", "CONTROLLER")
PORTS: Final = dict(zip(LISTENERS, (9092, 9093, 9094), strict=True))
BETWEEN_NODES: Final = LISTENERS[1:]
LOOPBACK: Final = "127.0.0.1"
HOST_NUMBER: Final = 254
UNUSED_MAC: Final = "02:00:00:00:ff:ff"  # a hardware address that no interface has
PATIENCE_S: Final = 60.0
UNREACHABLE_S: Final = 0.3  # a packet that has not arrived by then has no way to
PIECE_BYTES: Final = 1 << 16
MAX_FIRST_FRAME_BYTES: Final = 1 << 20


class Network(Protocol):
    name: str
    cuts_clients: bool
    hosts: Sequence[str]  # of all nodes, for their certificates

    def bound(self, node: int, listener: str) -> str:
        """Where a node's listener listens: host:port."""
        ...

    def advertised(self, node: int, listener: str) -> str:
        """The address that the node advertises."""
        ...

    def enter(self, node: int) -> list[str]:
        """The prefix of the command that starts a node."""
        ...

    def cut(self, cuts: Sequence[Cut]) -> None: ...

    def heal(self) -> None: ...

    def close(self) -> None: ...


# -- namespaces --------------------------------------------------------------------------------------------------------


class Namespaces:
    """This process is in a network namespace of its own already: see `unshare_command`."""

    name = "network namespaces on a bridge"
    cuts_clients = True

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = nodes
        self.hosts: Sequence[str] = [_ip(node) for node in nodes]
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._ours = os.readlink("/proc/self/ns/net")
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        here = ["link set lo up", "link add hub type bridge", f"address add {_ip(HOST_NUMBER)}/24 dev hub"]
        _ip_batch([], [*here, f"link set hub address {_mac(HOST_NUMBER)} up"])
        for node in self._nodes:
            holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], preexec_fn=die_with_parent)
            self._holders[node] = holder
            self._wait_entered(holder)
            far = f"peer name eth0 address {_mac(node)} netns {holder.pid}"
            _ip_batch([], [f"link add node{node} type veth {far}", f"link set node{node} master hub up"])
            inside = ["link set lo up", f"address add {_ip(node)}/24 dev eth0", "link set eth0 up"]
            _ip_batch(self.enter(node), inside)
        self.heal()

    def _wait_entered(self, holder: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + PATIENCE_S
        while holder.poll() is None and time.monotonic() < until:
            with suppress(OSError):
                if os.readlink(f"/proc/{holder.pid}/ns/net") != self._ours:
                    return
            time.sleep(0.005)
        raise OSError("a network namespace could not be made")

    def bound(self, node: int, listener: str) -> str:
        return f"{_ip(node)}:{PORTS[listener]}"

    advertised = bound

    def enter(self, node: int) -> list[str]:
        return ["nsenter", "--net", "--target", str(self._holders[node].pid), "--"]

    def cut(self, cuts: Sequence[Cut]) -> None:
        for sender, receiver in cuts:
            self._teach(sender, [(receiver, UNUSED_MAC)])

    def heal(self) -> None:
        """Sets every node's address at every other node. Nodes send no ARP requests, so no answer can undo a cut."""
        for sender in (CLIENTS, *self._nodes):
            others = (receiver for receiver in (CLIENTS, *self._nodes) if receiver != sender)
            self._teach(sender, [(receiver, _mac(receiver or HOST_NUMBER)) for receiver in others])

    def _teach(self, sender: int, addresses: Sequence[tuple[int, str]]) -> None:
        device = "hub" if sender == CLIENTS else "eth0"
        lines = [
            f"neighbour replace {_ip(receiver or HOST_NUMBER)} lladdr {address} nud permanent dev {device}"
            for receiver, address in addresses
        ]
        _ip_batch([] if sender == CLIENTS else self.enter(sender), lines)

    def close(self) -> None:
        """A namespace goes with the last process in it, though not at once."""
        for device in [*(f"node{node}" for node in self._holders), "hub"]:
            with suppress(OSError):  # it may not exist
                _ip_batch([], [f"link delete {device}"])
        for holder in self._holders.values():
            holder.kill()
            holder.wait()


def _ip(number: int) -> str:
    return f"10.77.0.{number}"


def _mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def _ip_batch(enter: Sequence[str], lines: Sequence[str]) -> None:
    done = subprocess.run([*enter, "ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {lines}: {done.stderr.strip()}")


def unshare_command() -> list[str]:
    """The prefix of a command that runs in its own namespaces; it needs no root where users may have
    namespaces."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *as_root, "--net", "--mount", "--"]


def are_namespaces_allowed() -> bool:
    """Tried, with everything that a run needs: a bridge, a node, a cut, a file system of its own."""
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "nsenter", "ip", "mount"))):
        return False
    tried = subprocess.run(
        [*unshare_command(), sys.executable, __file__],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    return tried.returncode == 0


def _try_everything() -> None:
    network = Namespaces([1])
    assert _is_reached(1)
    for way in ((CLIENTS, 1), (1, CLIENTS)):
        network.cut([way])
        assert not _is_reached(1)
        network.heal()
        assert _is_reached(1)
    network.close()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "trial", "/mnt"], check=True, capture_output=True)


def _is_reached(node: int) -> bool:
    """No process listens there, and the target machine refuses the connection."""
    try:
        socket.create_connection((_ip(node), PORTS["CLIENT"]), timeout=UNREACHABLE_S).close()
    except ConnectionRefusedError:
        return True
    except TimeoutError:
        return False
    raise AssertionError("a server listens")


# -- proxies -----------------------------------------------------------------------------------------------------------


class Proxies:
    """One in front of each listener that nodes use among themselves."""

    name = "loopback, with a proxy in front of each node"
    cuts_clients = False
    hosts: Sequence[str] = (LOOPBACK,)

    def __init__(self, nodes: Sequence[int]) -> None:
        self._reserved = {(node, listener): ReservedPort(LOOPBACK) for node in nodes for listener in LISTENERS}
        self._ports = {place: reserved.port for place, reserved in self._reserved.items()}
        self._http_servers: dict[tuple[int, str], int] = {}
        self._cuts: frozenset[Cut] = frozenset()
        self._changed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxies", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(PATIENCE_S)

    async def _open(self) -> None:
        for (node, listener), port in self._ports.items():
            if listener in BETWEEN_NODES:

                async def serve(
                    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: int = node, port: int = port
                ) -> None:
                    await self._serve(reader, writer, node, port)

                server = await asyncio.start_server(serve, LOOPBACK, 0)
                self._servers.append(server)
                self._http_servers[node, listener] = server.sockets[0].getsockname()[1]

    def bound(self, node: int, listener: str) -> str:
        return f"{LOOPBACK}:{self._ports[node, listener]}"

    def advertised(self, node: int, listener: str) -> str:
        return f"{LOOPBACK}:{self._http_servers.get((node, listener), self._ports[node, listener])}"

    def enter(self, node: int) -> list[str]:
        return []

    def cut(self, cuts: Sequence[Cut]) -> None:
        self._set(self._cuts | set(cuts))

    def heal(self) -> None:
        self._set(frozenset())

    def _set(self, cuts: frozenset[Cut]) -> None:
        def change() -> None:
            self._cuts = cuts
            self._changed.set()
            self._changed = asyncio.Event()

        self._loop.call_soon_threadsafe(change)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, callee: int, port: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far: asyncio.StreamWriter | None = None
        try:
            first = await _first_frame(reader)
            caller = _caller(first)
            await self._until_open(caller, callee)
            answers, far = await asyncio.open_connection(LOOPBACK, port)
            far.write(first)
            ways = (self._pump(reader, far, (caller, callee)), self._pump(answers, writer, (callee, caller)))
            pumps = [asyncio.ensure_future(way) for way in ways]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, EOFError, ValueError, asyncio.CancelledError):
            pass  # the caller sees that the connection ends
        finally:
            self._tasks.discard(task)
            for each in (writer, far):
                if each is not None:
                    each.close()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, way: Cut) -> None:
        while data := await source.read(PIECE_BYTES):
            await self._until_open(*way)
            target.write(data)
            await target.drain()
        await self._until_open(*way)

    async def _until_open(self, sender: int, receiver: int) -> None:
        while (sender, receiver) in self._cuts:
            await self._changed.wait()

    def close(self) -> None:
        for reserved in self._reserved.values():
            reserved.close()
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(PATIENCE_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)
            self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first_frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    if int.from_bytes(size) > MAX_FIRST_FRAME_BYTES:
        raise ValueError("no node begins with that much")
    return size + await reader.readexactly(int.from_bytes(size))


def _caller(frame: bytes) -> int:
    """Size, API key, version, correlation id, then the client id, which is that of a node: trioka-2."""
    length = int.from_bytes(frame[12:14], signed=True)
    return int(frame[14 : 14 + max(length, 0)].decode(errors="replace").removeprefix("trioka-"))


def new_network(nodes: Sequence[int], *, has_namespaces: bool) -> Network:
    return Namespaces(nodes) if has_namespaces else Proxies(nodes)


if __name__ == "__main__":
    assert Path("/proc/self/ns/net").exists()
    _try_everything()
