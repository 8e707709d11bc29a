# Hosts as network namespaces, and what lies between them: delay, loss, reordering, a rate, cuts. The kernel does that to
# packets where it can (tc's netem on veth pairs at bridges); else a relay in user space does (wire.c, TUN devices), and
# says so. A way has two sides, out of a host and into it, and words with values as wire.c's; they hold until changed.
import itertools
import json
import os
import subprocess

from job import Job

SKIP = 77


class Impossible(Exception):
    """Why there can be no namespaces here."""


def run(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise Impossible(f"there is no {command[0]} (iproute2)") from None
    if done.returncode != 0:
        raise Impossible(f"{' '.join(command)}: {done.stderr.strip()}")


class Veth:
    """A bridge in a namespace of its own; netem on both ends of each cable."""

    def __init__(self, network, number):
        self.network, self.number, self.set = network, number, {}
        self.switch = f"{network.mark}-s{number}"
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "add", "switch", "type", "bridge")
        run("ip", "-n", self.switch, "link", "set", "switch", "up")
        for host in range(network.hosts):
            run("ip", "-n", self.switch, "link", "add", f"port{host}", "mtu", str(network.mtu), "type", "veth", "peer", "name",
                f"net{number}", "mtu", str(network.mtu), "netns", network.namespace(host))
            run("ip", "-n", self.switch, "link", "set", f"port{host}", "master", "switch", "up")
            self.shape("out", host, delay=0)

    def shape(self, side, host, **words):
        now = self.set.setdefault((side, host), {})
        now.update(words)
        where = [self.switch, f"port{host}"] if side == "in" else [self.network.namespace(host), f"net{self.number}"]
        delay = now.get("delay", 0)
        netem = ["delay", f"{delay or (3 if now.get('reorder') else 0)}ms", "limit", "20000",
                 "loss", f"{100 if now.get('cut') else now.get('loss', 0)}%"]
        netem += ["reorder", f"{now['reorder']}%"] if now.get("reorder") else []
        netem += ["rate", f"{now['rate']}kbit"] if now.get("rate") else []
        run("tc", "-n", where[0], "qdisc", "replace", "dev", where[1], "root", "netem", *netem)

    def close(self):
        subprocess.run(["ip", "netns", "del", self.switch], capture_output=True)


class Relay:
    """wire.c: a process that has one end of every host's device."""

    def __init__(self, network, number):
        devices = [f"{network.namespace(host)}=net{number},{network.mtu}" for host in range(network.hosts)]
        self.process = subprocess.Popen([network.wire, *devices], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise Impossible("no TUN devices (/dev/net/tun)")

    def shape(self, side, host, **words):
        for word, value in words.items():
            self.process.stdin.write(f"{side} {host} {word} {value}\n")
            self.process.stdin.flush()
            self.process.stdout.readline()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Network:
    """Hosts 0 to `hosts` - 1; host H's address in network N is 10.77.N.(10 + H), or fd77::N:(10 + H) in hexadecimal."""

    count = itertools.count(1)  # several threads make networks

    def __init__(self, wire, hosts, nets=1, mtu=1500, v6=False):
        self.mark = f"mu-{os.getpid()}-{next(Network.count)}"
        self.wire, self.hosts, self.mtu, self.v6, self.nets, self.port = wire, hosts, mtu, v6, [], 4500
        try:
            for host in range(hosts):
                run("ip", "netns", "add", self.namespace(host))
                run("ip", "-n", self.namespace(host), "link", "set", "lo", "up")
            for number in range(nets):
                self.nets.append(self.connect(number))
                for host in range(hosts):
                    self.bring_up(number, host)
        except Impossible:
            self.close()
            raise

    def connect(self, number):
        try:
            made = Veth(self, number)
            self.how = "netem on veth pairs"
        except Impossible as why:
            subprocess.run(["ip", "netns", "del", f"{self.mark}-s{number}"], capture_output=True)
            for host in range(self.hosts):
                subprocess.run(["ip", "-n", self.namespace(host), "link", "del", f"net{number}"], capture_output=True)
            made = Relay(self, number)
            self.how = f"a relay in user space ({why})"
        return made

    def bring_up(self, number, host):
        address = self.address(host, number)
        more = ["nodad"] if self.v6 else []
        run("ip", "-n", self.namespace(host), "addr", "add", f"{address}/{112 if self.v6 else 24}", "dev", f"net{number}", *more)
        run("ip", "-n", self.namespace(host), "link", "set", f"net{number}", "up")

    def namespace(self, host):
        return f"{self.mark}-{host}"

    def address(self, host, number=0):
        return f"fd77::{number}:{10 + host:x}" if self.v6 else f"10.77.{number}.{10 + host}"

    def inside(self, host):
        return ["ip", "netns", "exec", self.namespace(host)]

    def shape(self, host, number=0, side=None, **words):
        """Both sides of a host's way, unless one is named."""
        for one in (side,) if side else ("out", "in"):
            self.nets[number].shape(one, host, **words)

    def calm(self):
        for number in range(len(self.nets)):
            for host in range(self.hosts):
                self.shape(host, number, delay=0, loss=0, reorder=0, rate=0, cut=0)

    def next_port(self):
        self.port += 1
        return self.port

    def listening(self):
        """Ports that somebody listens on, on any host."""
        found = []
        for host in range(self.hosts):
            text = subprocess.run([*self.inside(host), "cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True).stdout
            found += [f"host {host}: {line.split()[1]}" for line in text.splitlines() if line.split()[3] == "0A"]
        return found

    def close(self):
        for net in self.nets:
            net.close()
        for host in range(self.hosts):
            subprocess.run(["ip", "netns", "del", self.namespace(host)], capture_output=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class HostsJob(Job):
    """A job with one process on each host."""

    def __init__(self, network, arguments, environment=None, addresses=None):
        super().__init__(arguments, network.hosts, environment, network.inside)
        port = network.next_port()
        self.addresses = addresses or [f"[{network.address(r)}]:{port}" if network.v6 else f"{network.address(r)}:{port}"
                                       for r in range(network.hosts)]

    def config(self, rank):
        return json.dumps({"cluster": {"worker": self.addresses}, "task": {"type": "worker", "index": rank}})
