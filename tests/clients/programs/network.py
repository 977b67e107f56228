"""A network of machines, each a network namespace, around a router with the addresses 10.0.0.1, fd00::1 and those of OUTSIDE.

Arguments: for each machine NAME=INTERCEPTION, the n-th one with the addresses 10.0.0.(n+1) and fd00::(n+1). INTERCEPTION is
`none`, or `redirect` or `tproxy`: the machine's TCP is then taken to a sidecar, as Istio's iptables rules do it.
Prints one line: the paths of the namespaces (the router's, then each machine's) as JSON. They last until standard input ends.
"""

import ctypes
import errno
import json
import os
import socket
import struct
import sys

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.nftables.expressions import genex, verdict
from pyroute2.nftables.main import NFTables

CLONE_NEWNET = 0x40000000
# Addresses of the router that no machine and no service has.
OUTSIDE = ["192.0.2.1", "2001:db8::1"]
# The group of the sidecar, and its ports.
SIDECAR, OUTBOUND, INBOUND = 1337, 15001, 15006
# Ports of the sidecar and its agent that are reached without the sidecar.
NOT_INTERCEPTED = [15008, 15020, 15021, 15090]
# The mark of traffic between the sidecar and the program in its TPROXY mode, and the table of routes for it.
MARK, TABLE = 1337, 133
# The mark of traffic from the sidecar to itself, of a program that calls its own service.
CALLS_ITSELF = 1338
ACCEPT, RETURN = 1, -5
libc = ctypes.CDLL(None, use_errno=True)


def namespace():
    """Enters a new namespace and gives a file that keeps it."""
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "a network namespace of one's own")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter(file):
    if libc.setns(file, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "entering a network namespace")


def sysctl(name, value):
    with open("/proc/sys/net/" + name, "w") as file:
        file.write(value)


def start(link):
    """Loopback with Istio's IPv6 address of traffic from the sidecar; addresses count at once."""
    sysctl("ipv6/conf/all/disable_ipv6", "0")
    sysctl("ipv6/conf/default/disable_ipv6", "0")
    sysctl("ipv6/conf/default/accept_dad", "0")
    for name in ["all", "default"]:
        sysctl(f"ipv4/conf/{name}/rp_filter", "0")
    link.link("set", index=link.link_lookup(ifname="lo")[0], state="up")
    link.addr("add", index=link.link_lookup(ifname="lo")[0], address="::6", prefixlen=128)


def connect(name, number, file, router):
    """A machine of the bridge, whose way to everything else is the router."""
    with IPRoute() as link:
        start(link)
        link.link("add", ifname="eth0", kind="veth", peer={"ifname": name, "net_ns_fd": router})
        eth0 = link.link_lookup(ifname="eth0")[0]
        link.addr("add", index=eth0, address=f"10.0.0.{number}", prefixlen=24)
        link.addr("add", index=eth0, address=f"fd00::{number}", prefixlen=64, flags=0x02)
        link.link("set", index=eth0, state="up")
    enter(router)
    with IPRoute() as link:
        bridge = link.link_lookup(ifname="bridge")[0]
        link.link("set", index=link.link_lookup(ifname=name)[0], master=bridge, state="up")
    enter(file)
    with IPRoute() as link:
        link.route("add", dst="0.0.0.0/0", gateway="10.0.0.1")
        link.route("add", dst="::/0", gateway="fd00::1", family=socket.AF_INET6)


class Family:
    """The words of the rules of one address family."""

    def __init__(self, number, loopback, passthrough, source, destination):
        self.number, self.source, self.destination = number, source, destination
        self.loopback = socket.inet_pton(number, loopback)
        self.passthrough = socket.inet_pton(number, passthrough)

    def address(self, offset, value, equal=True):
        load = genex("payload", {"dreg": 1, "base": 1, "offset": offset, "len": len(value)})
        return [load, compare(value, equal)]

    def from_sidecar(self):
        """The source address that the sidecar takes towards its program."""
        return self.address(self.source, self.passthrough)

    def to_loopback(self, equal=True):
        return self.address(self.destination, self.loopback, equal)


IPV4 = Family(socket.AF_INET, "127.0.0.1", "127.0.0.6", 12, 16)
IPV6 = Family(socket.AF_INET6, "::1", "::6", 8, 24)
# Keys of nftables' `meta` and `ct`.
META_MARK, META_IIF, META_OIF, META_GROUP, META_PROTOCOL = 3, 4, 5, 11, 16
CT_STATE, CT_MARK = 0, 3


def compare(value, equal=True):
    return genex("cmp", {"sreg": 1, "op": 0 if equal else 1, "data": {"attrs": [("NFTA_DATA_VALUE", value)]}})


def meta(key, value, equal=True):
    return [genex("meta", {"dreg": 1, "key": key}), compare(value, equal)]


def number(value):
    """A number as the kernel holds it."""
    return struct.pack("=I", value)


def load(value):
    return genex("immediate", {"dreg": 1, "data": {"attrs": [("NFTA_DATA_VALUE", value)]}})


def tcp():
    return meta(META_PROTOCOL, bytes([socket.IPPROTO_TCP]))


def to_port(port, equal=True):
    return [genex("payload", {"dreg": 1, "base": 2, "offset": 2, "len": 2}), compare(struct.pack(">H", port), equal)]


def of_sidecar(equal=True):
    return meta(META_GROUP, number(SIDECAR), equal)


def over_loopback(key):
    # The loopback interface of each namespace has the index 1.
    return meta(key, number(1))


def marked(value, equal=True):
    return meta(META_MARK, number(value), equal)


def established():
    mask = {"attrs": [("NFTA_DATA_VALUE", number(0b110))]}
    zero = {"attrs": [("NFTA_DATA_VALUE", number(0))]}
    masked = genex("bitwise", {"sreg": 1, "dreg": 1, "len": 4, "mask": mask, "xor": zero})
    return [genex("ct", {"dreg": 1, "key": CT_STATE}), masked, compare(number(0), equal=False)]


def set_mark(mark=MARK):
    return [load(number(mark)), genex("meta", {"key": META_MARK, "sreg": 1})]


def redirect(port):
    return [load(struct.pack(">H", port)), genex("redir", {"reg_proto_min": 1})]


def transparently(family, port):
    return [load(struct.pack(">H", port)), genex("tproxy", {"family": family.number, "reg_port": 1})]


class Table:
    def __init__(self, family):
        self.tables = NFTables(nfgen_family=family.number)
        self.tables.table("add", name="sidecar")

    def chain(self, name, kind, hook, priority, rules):
        self.tables.chain("add", table="sidecar", name=name, hook=hook, type=kind, priority=priority, policy=1)
        for rule in rules:
            self.tables.rule("add", table="sidecar", chain=name, expressions=[tcp() + rule])


def intercept_outbound(family, table):
    table.chain("output", "nat", "output", -100, [
        over_loopback(META_OIF) + family.from_sidecar() + verdict(RETURN),
        # A program that calls itself through its sidecar comes in as every other client does.
        over_loopback(META_OIF) + family.to_loopback(False) + to_port(15008, False) + of_sidecar() + redirect(INBOUND),
        over_loopback(META_OIF) + of_sidecar(False) + verdict(RETURN),
        of_sidecar() + verdict(RETURN),
        family.to_loopback() + verdict(RETURN),
        redirect(OUTBOUND),
    ])


def intercept_outbound_beside_tproxy(family, table):
    table.chain("output", "nat", "output", -100, [
        over_loopback(META_OIF) + verdict(RETURN),
        of_sidecar() + verdict(RETURN),
        family.to_loopback() + verdict(RETURN),
        redirect(OUTBOUND),
    ])


def intercept_inbound(family, table):
    apart = [to_port(port) + verdict(RETURN) for port in NOT_INTERCEPTED]
    table.chain("prerouting", "nat", "prerouting", -100, apart + [redirect(INBOUND)])


def intercept_inbound_transparently(family, table):
    save = [genex("meta", {"dreg": 1, "key": META_MARK}), genex("ct", {"key": CT_MARK, "sreg": 1})]
    restore = [genex("ct", {"dreg": 1, "key": CT_MARK}), genex("meta", {"key": META_MARK, "sreg": 1})]
    of_connection = [genex("ct", {"dreg": 1, "key": CT_MARK}), compare(number(MARK))]
    apart = [to_port(port) + verdict(RETURN) for port in NOT_INTERCEPTED]
    table.chain("divert", "filter", "prerouting", -150, [
        marked(MARK) + save,
        marked(MARK) + verdict(RETURN),
        over_loopback(META_IIF) + family.from_sidecar() + verdict(RETURN),
        over_loopback(META_IIF) + marked(CALLS_ITSELF, False) + verdict(RETURN),
    ] + apart + [
        established() + set_mark() + verdict(ACCEPT),
        family.to_loopback(False) + set_mark() + transparently(family, INBOUND) + verdict(ACCEPT),
    ])
    table.chain("restore", "route", "output", -150, [
        over_loopback(META_OIF) + marked(MARK) + verdict(RETURN),
        over_loopback(META_OIF) + family.to_loopback(False) + of_sidecar() + set_mark(CALLS_ITSELF),
        of_connection + restore,
    ])
    with IPRoute() as link:
        link.rule("add", fwmark=MARK, table=TABLE, family=family.number)
        every = "0.0.0.0/0" if family is IPV4 else "::/0"
        lo = link.link_lookup(ifname="lo")[0]
        link.route("add", dst=every, oif=lo, table=TABLE, type="local", scope="host", family=family.number)


def intercept(mode):
    for family in [IPV4, IPV6]:
        if mode != "none":
            table = Table(family)
            if mode == "redirect":
                intercept_outbound(family, table)
                intercept_inbound(family, table)
            else:
                intercept_outbound_beside_tproxy(family, table)
                intercept_inbound_transparently(family, table)


def main():
    router = namespace()
    with IPRoute() as link:
        start(link)
        sysctl("ipv4/ip_forward", "1")
        sysctl("ipv6/conf/all/forwarding", "1")
        link.link("add", ifname="bridge", kind="bridge")
        bridge = link.link_lookup(ifname="bridge")[0]
        link.addr("add", index=bridge, address="10.0.0.1", prefixlen=24)
        link.addr("add", index=bridge, address="fd00::1", prefixlen=64, flags=0x02)
        for address in OUTSIDE:
            lo = link.link_lookup(ifname="lo")[0]
            link.addr("add", index=lo, address=address, prefixlen=128 if ":" in address else 32)
        link.link("set", index=bridge, state="up")
    files = [router]
    for n, machine in enumerate(sys.argv[1:]):
        name, mode = machine.split("=")
        file = namespace()
        connect(name, n + 2, file, router)
        intercept(mode)
        files.append(file)
    print(json.dumps([f"/proc/{os.getpid()}/fd/{file}" for file in files]), flush=True)
    sys.stdin.read()


def lack(error):
    """The right or the part of the kernel that this failure is the lack of."""
    code = getattr(error, "code", None) or getattr(error, "errno", None)
    if code in (errno.EPERM, errno.EACCES):
        return "the right to set up networks (root)"
    if code in (errno.ENOENT, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.ENOSYS):
        return f"a part of the kernel that networks need ({error})"
    return None


try:
    main()
except (OSError, NetlinkError) as error:
    if lack(error) is None:
        raise
    print("lacks", lack(error), flush=True)
