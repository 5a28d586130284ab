"""Network namespaces and mounts that the scripts make for themselves: each broker and each server with a network of its own,
which can be cut off. Everything goes with the process that has entered, whatever ends it."""

import os
import shutil
import signal
import subprocess
import sys

# Brokers and servers reach each other by one, clients and servers by the other.
HOME, CLIENTS = "home", "clients"
NETS = {HOME: "10.0.1", CLIENTS: "10.0.2"}
WITHIN = "TIDEWIRE_TEST_WITHIN"


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def enter():
    """Has this program begin again in namespaces of its own (networks, mounts, processes), and ends as that does; whether it is
    there. False, with a word, where there can be none."""
    if os.environ.get(WITHIN):
        return True
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    lacking = [tool for tool in ("unshare", "nsenter", "ip") if not shutil.which(tool)]
    if lacking or subprocess.run([*apart, "ip", "link", "add", "hub", "type", "bridge"], stderr=subprocess.DEVNULL).returncode:
        print("skipped: networks that are cut: no namespaces can be made here "
              f"({'there is no ' + ', '.join(lacking) if lacking else 'that takes root and bridges'})", flush=True)
        return False
    within = subprocess.Popen([*apart, sys.executable, *sys.argv], env={**os.environ, WITHIN: "1"})
    # A signal to this process ends everything that was started; the terminal signals both.
    signal.signal(signal.SIGTERM, lambda *_: within.kill())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(within.wait())


class Network:
    """Two bridges, with this process at each."""

    def __init__(self):
        # A client on another host than the server's shows a token; servers and clients inherit it.
        os.environ["TIDEWIRE_INGEST_TOKEN"] = os.environ["TIDEWIRE_TOKEN"] = "of-a-test"
        # Where names of namespaces stand, which other processes need not know.
        os.makedirs("/run/netns", exist_ok=True)
        run("mount", "-t", "tmpfs", "spaces", "/run/netns")
        run("ip", "link", "set", "lo", "up")
        for bridge, net in NETS.items():
            run("ip", "link", "add", bridge, "type", "bridge")
            run("ip", "addr", "add", f"{net}.1/24", "dev", bridge)
            run("ip", "link", "set", bridge, "up")


class Space:
    """A namespace with a leg on one of the bridges or on both."""

    def __init__(self, name, number, legs):
        self.name, self.number, self.legs = name, number, legs
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
        for leg in legs:
            run("ip", "link", "add", self.port(leg), "type", "veth", "peer", "name", leg, "netns", name)
            run("ip", "-n", name, "addr", "add", f"{self.addr(leg)}/24", "dev", leg)
            run("ip", "-n", name, "link", "set", leg, "up")
            run("ip", "link", "set", self.port(leg), "master", leg, "up")

    def port(self, leg):
        return f"{self.name}-{leg}"

    def addr(self, leg):
        return f"{NETS[leg]}.{self.number}"

    def enter(self):
        """What a command begins with that is to run in it. (`ip netns exec` would keep mounts busy.)"""
        return ["nsenter", f"--net=/run/netns/{self.name}", "--"]

    def cut(self, *legs):
        for leg in legs:
            run("ip", "link", "set", self.port(leg), "down")

    def heal(self):
        for leg in self.legs:
            run("ip", "link", "set", self.port(leg), "up")

    def shun(self, leg, is_on):
        """Two that shun do not reach each other, but all others."""
        run("ip", "link", "set", self.port(leg), "type", "bridge_slave", "isolated", "on" if is_on else "off")
