"""``make chaos``: a fleet under mixed load while every fault strikes, and then the question whether every promise held.

``ARGS="--seeds 20"`` for more than one; ``--seed N`` repeats one: what callers ask for and in which order what strikes;
what the machine makes of it differs from run to run. ``--mutants`` shows that the checks can fail.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from pathlib import Path

from tests.chaos.fleet import Servers
from tests.chaos.mutants import MUTANTS, mutated
from tests.chaos.run import Plan, Report, chaos
from tests.services.account import passable_directory, remove_tree
from tests.services.postgres import PostgresServer
from tests.services.process import ROOT
from tests.services.rabbitmq import RabbitServer
from tests.services.rclone import S3Server
from tests.services.redis import RedisServer


def main() -> int:
    options = parse()
    # Ended like an interrupted one: nothing that was started stays.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = passable_directory("sandloom-chaos")
    servers = open_servers(directory, options.broker)
    try:
        if options.mutants is not None:
            return mutants(options, servers, directory)
        return seeds(options, servers, directory)
    finally:
        for server in servers:
            server.stop()
        if options.keep:
            print(f"kept: {directory}")
        else:
            remove_tree(directory)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description="A fleet under load while everything fails.")
    parser.add_argument("--seed", type=int, help="the first one; default: any")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--commands", type=int, default=2000, help="that are accepted at least")
    parser.add_argument("--strikes", type=int, default=3, help="of each fault")
    parser.add_argument("--callers", type=int, default=10)
    parser.add_argument("--broker", choices=["redis", "rabbitmq"], default="redis")
    parser.add_argument("--mutants", nargs="*", choices=sorted(MUTANTS), help="builds that must be caught; default all")
    parser.add_argument("--keep", action="store_true", help="leave logs and disks where they are")
    return parser.parse_args()


def open_servers(directory: Path, broker: str) -> Servers:
    rabbitmq = RabbitServer(directory / "rabbitmq") if broker == "rabbitmq" else None
    postgres, redis, s3 = (
        PostgresServer(directory / "postgres"), RedisServer(directory / "redis"), S3Server(directory / "s3"),
    )  # fmt: skip
    servers = Servers(postgres, redis, s3, rabbitmq)
    for server in servers:
        server.start()
    return servers


def seeds(options: argparse.Namespace, servers: Servers, directory: Path) -> int:
    first = random.randrange(1 << 32) if options.seed is None else options.seed
    failed = []
    for seed in range(first, first + options.seeds):
        plan = Plan(seed, options.commands, options.strikes, options.callers)
        report = run(plan, servers, directory, ROOT, keep=options.keep)
        if report.faults:
            failed.append(seed)
    print(f"{options.seeds - len(failed)} of {options.seeds} seeds passed" + (f"; not {failed}" if failed else ""))
    return 1 if failed else 0


def mutants(options: argparse.Namespace, servers: Servers, directory: Path) -> int:
    missed = []
    for name in options.mutants or MUTANTS:
        mutant = MUTANTS[name]
        with mutated(mutant, directory) as tree:
            seed = random.randrange(1 << 32) if options.seed is None else options.seed
            print(f"without {name}: {mutant.what}")
            plan = Plan(seed, mutant.commands, mutant.strikes, options.callers, mutant.faults, first_fault_ends=True)
            if not run(plan, servers, directory, tree, keep=options.keep).faults:
                missed.append(name)
    print("every mutant was caught" if not missed else f"not caught: {missed}")
    return 1 if missed else 0


def run(plan: Plan, servers: Servers, directory: Path, tree: Path, *, keep: bool) -> Report:
    print(f"seed {plan.seed}", flush=True)
    own = directory / f"seed-{plan.seed}-{len(list(directory.glob('seed-*')))}"
    own.mkdir(mode=0o711)
    report = chaos(plan, servers, own, tree)
    print(report, flush=True)
    if not keep:
        remove_tree(own)
    return report


if __name__ == "__main__":
    sys.exit(main())
