"""`python -m localcluster`: start, use and stop a local cluster."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from localcluster import build, power, tags
from localcluster.lifecycle import ClusterError, LocalCluster, inside_environment


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
    node = commands.add_parser(
        "node", help="stop one node as if it had lost its power, or start it"
    )
    node.add_argument("action", choices=["stop", "start"])
    node.add_argument("name", help="such as node-1; a new name starts a new node")
    node.add_argument("--pool", help="a new node is for pods alone that ask for this pool")
    tag = commands.add_parser("tag", help="let an image reference mean what another one means now")
    tag.add_argument("image", help="such as sim/vllm:0.29.0-other")
    tag.add_argument("reference", help="such as sim/vllm:stable")
    logs = commands.add_parser("logs", help="print the log of a process of the cluster")
    logs.add_argument("name", help="etcd, kube-apiserver, node-agent, audit, ...")
    options = parser.parse_args()
    cluster = LocalCluster()
    try:
        return _run(options, cluster)
    except (ClusterError, build.BuildError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace, cluster: LocalCluster) -> int:
    if options.command == "build":
        print(build.binaries())
    elif options.command == "up":
        cluster.up(operator=not options.no_operator)
        _next_commands(cluster, operator=not options.no_operator)
    elif options.command == "down":
        print("stopped" if cluster.down() else "nothing was running")
    elif options.command == "status":
        return _status(cluster)
    elif options.command == "node":
        _switch(options, cluster)
    elif options.command == "tag":
        tags.move(cluster.directory, options.reference, options.image)
    elif options.command == "logs":
        _become(["cat", str(cluster.log(options.name))], dict(os.environ))
    else:
        arguments = options.arguments
        command = arguments[1:] if arguments[:1] == ["--"] else arguments
        line = cluster.command_inside(command or [os.environ.get("SHELL", "/bin/sh")])
        _become(line, {**inside_environment(), "KUBECONFIG": str(cluster.kubeconfig)})
    return 0


def _switch(options: argparse.Namespace, cluster: LocalCluster) -> None:
    if options.action == "stop":
        power.stop(cluster.directory, options.name)
    else:
        power.start(cluster.directory, options.name, options.pool)


def _status(cluster: LocalCluster) -> int:
    found = cluster.running()
    if found is None:
        print(f"no cluster runs in {cluster.directory}")
        return 1
    print(f"running as process {found.pid}, API server at https://127.0.0.1:{found.port}")
    print(f"KUBECONFIG={cluster.kubeconfig}")
    problems = cluster.problems()
    for problem in problems:
        print(f"broken: {problem}")
    return 1 if problems else 0


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Go on as another program: its signals, terminal and exit code are ours."""
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise ClusterError(f"{command[0]} cannot be run: {error.strerror}") from error


def _next_commands(cluster: LocalCluster, *, operator: bool) -> None:
    kubectl = build.kubectl()
    lines = [f"export KUBECONFIG={cluster.kubeconfig}", f"{kubectl} get nodes"]
    if operator:
        lines.append(f"{kubectl} get vllmupgrades --all-namespaces")
    lines.append("make demo     # an upgrade that is promoted, and one that is rolled back")
    lines.append("make down     # stop all of it")
    print("\nThe cluster runs. To try next:\n  " + "\n  ".join(lines))


if __name__ == "__main__":
    sys.exit(main())
