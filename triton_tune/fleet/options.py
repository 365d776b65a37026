"""The arguments with which a tuning command measures on many hosts."""

import argparse
from functools import partial

from triton_tune.core.arguments import count
from triton_tune.fleet.shards import Shard, shard_from


def add_fleet_arguments(arguments: argparse.ArgumentParser) -> None:
    """Add --shard, --ray and --ray-workers."""
    arguments.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="measure part I of N, as one host of N; `treegen merge` joins the tables (their folders end in "
        "-shard-I-of-N)",
    )
    arguments.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="measure on all GPUs of a Ray cluster, as host:port of its head (default: the cluster of this "
        "host, or else a new one of its GPUs); each GPU model gets a table",
    )
    arguments.add_argument(
        "--ray-workers",
        type=partial(count, least=1, most=100_000),
        metavar="N",
        help="ask Ray for N GPUs, also if there are fewer yet (default: all that the cluster has)",
    )


def _shard(text: str) -> Shard:
    try:
        return shard_from(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
