"""`python -m localcluster`: start, use and stop a local cluster."""

from __future__ import annotations

import argparse
import os
import sys

from localcluster import build
from localcluster.lifecycle import ClusterError, LocalCluster


def main() -> int:
    """Run one command; give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m localcluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the control plane's binaries, and print where")
    up = commands.add_parser("up", help="start control plane, nodes and operator")
    up.add_argument("--no-operator", action="store_true", help="leave the operator out")
    commands.add_parser("down", help="stop all that `up` started")
    commands.add_parser("status", help="say whether a cluster runs, and how to reach it")
    inside = commands.add_parser("exec", help="run a command inside: exec -- COMMAND...")
    inside.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    cluster = LocalCluster()
    try:
        return _run(options, cluster)
    except (ClusterError, build.BuildError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace, cluster: LocalCluster) -> int:
    if options.command == "build":
        print(build.binaries())
    elif options.command == "up":
        cluster.up(operator=not options.no_operator)
        _next_commands(cluster)
    elif options.command == "down":
        print("stopped" if cluster.down() else "nothing was running")
    elif options.command == "status":
        return _status(cluster)
    else:
        arguments = options.arguments
        command = arguments[1:] if arguments[:1] == ["--"] else arguments
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
        line = cluster.command_inside(command or [os.environ.get("SHELL", "/bin/sh")])
        os.execvp(line[0], line)  # noqa: S606 - as nsenter itself does
    return 0


def _status(cluster: LocalCluster) -> int:
    found = cluster.running()
    if found is None:
        print("no cluster runs")
        return 1
    print(f"running as process {found.pid}, API server at https://127.0.0.1:{found.port}")
    print(f"KUBECONFIG={cluster.kubeconfig}")
    return 0


def _next_commands(cluster: LocalCluster) -> None:
    kubectl = build.kubectl()
    print(
        f"""
The cluster runs. To try next:
  export KUBECONFIG={cluster.kubeconfig}
  {kubectl} get nodes
  {kubectl} get vllmupgrades --all-namespaces
  make demo     # an upgrade that is promoted, and one that is rolled back
  make down     # stop all of it"""
    )


if __name__ == "__main__":
    sys.exit(main())
