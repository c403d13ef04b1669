"""Traces of a command while it runs: planted secrets that it leaks, and addresses that it listens at."""

import ipaddress
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.processes import title, tree

SECRETS = {
    name: f"planted-{name.lower()}".ljust(44, "x")
    for name in ("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "SERPAPI_API_KEY", "SEAL_RAY_API_KEY")
}
"""Environment variables for a command that is watched."""


def has_secret(text: str) -> bool:
    return any(secret in text for secret in SECRETS.values())


def leaking_files(*folders: Path) -> set[str]:
    """The files below these folders that hold a planted secret."""
    leaking = set()
    for path in [path for folder in folders for path in folder.rglob("*")]:
        with suppress(OSError):  # it is gone, or a socket
            if path.is_file() and has_secret(path.read_bytes().decode("latin-1")):
                leaking.add(str(path))
    return leaking


def leaking_commands(pids: Iterable[int]) -> set[str]:
    """The command lines of these processes that hold a planted secret."""
    return {line for line in map(title, pids) if has_secret(line)}


def open_addresses(pids: Iterable[int]) -> set[tuple[str, str]]:
    """(process, address) of each address other than loopback at which one of these processes listens."""
    found = set()
    for pid in pids:
        with suppress(psutil.Error):
            for each in psutil.Process(pid).net_connections("inet"):
                address = ipaddress.ip_address(each.laddr.ip)
                mapped = getattr(address, "ipv4_mapped", None) or address
                if (each.status == psutil.CONN_LISTEN or not each.raddr) and not mapped.is_loopback:
                    found.add((title(pid)[:60], str(address)))
    return found


def watch(process: subprocess.Popen[str], *folders: Path) -> tuple[set[str], set[tuple[str, str]]]:
    """The leaks of a process to command lines and files, and the addresses that it opens, until it has ended."""
    leaked, opened = set[str](), set[tuple[str, str]]()
    while process.poll() is None:
        pids = tree(process.pid)
        leaked |= leaking_commands(pids) | leaking_files(*folders)
        opened |= open_addresses(pids)
        time.sleep(1.0)
    return leaked | leaking_files(*folders), opened
