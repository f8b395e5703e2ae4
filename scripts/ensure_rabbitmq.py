"""Have a RabbitMQ to compare the queues with: use the one that is there, or install Debian's where we may.

Without one the tests against RabbitMQ are skipped, each with a line that says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
POLICY = Path("/usr/sbin/policy-rc.d")


def main() -> None:
    """Install RabbitMQ if it is missing and this user may install packages."""
    if PROGRAM.is_file():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print("setup: no RabbitMQ here, so the tests against it will be skipped", flush=True)
        return
    print("setup: installing rabbitmq-server for the tests against it (once)", flush=True)
    install()
    if not PROGRAM.is_file():
        print("setup: RabbitMQ could not be installed, so the tests against it will be skipped", flush=True)


def install() -> None:
    """Install the package without having its service started: each test run starts a node of its own."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    keeps_policy = POLICY.exists()
    if not keeps_policy:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        for arguments in (["update"], ["install", "--no-install-recommends", "rabbitmq-server"]):
            subprocess.run(["apt-get", "-qq", "-y", *arguments], env=environment, check=False)
    finally:
        if not keeps_policy:
            POLICY.unlink()


if __name__ == "__main__":
    main()
