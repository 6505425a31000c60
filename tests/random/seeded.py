"""What checks of random models have in common: options, a folder for the model of each seed, and `braid test`.

Model number i is made from seed S + i alone, so a failure is repeated by COUNT 1 and that seed.
"""
import argparse
import contextlib
import subprocess
import tempfile


def options(doc, count=None, where=True):
    """The options COUNT (`count` where it is not given), --seed and --braid; `where`: also those of test()."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("count", type=int, **({} if count is None else {"nargs": "?", "default": count}))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--braid", default="build/release/braid")
    if where:
        p.add_argument("--target", action="append")
        p.add_argument("--threads", default="1")
        p.add_argument("--cpu")
    return p.parse_args()


@contextlib.contextmanager
def folders(args):
    """For each seed a folder that may be made, as {seed: folder}. They are removed in the end."""
    with tempfile.TemporaryDirectory() as d:
        yield {seed: f"{d}/seed_{seed}" for seed in range(args.seed, args.seed + args.count)}


def test(args, made, *how):
    """Runs the models in the folders `made` and compares their outputs, for each target: 0 if all are right."""
    status = 0
    for target in args.target or ["cpu"]:
        command = [args.braid, "test", "--target", target, "--threads", args.threads, *(["--cpu", args.cpu] if args.cpu else []), *how]
        status |= subprocess.run([*command, *made]).returncode if made else 0
    return status


def failure(braid, folder, *how):
    """What `braid test` says of one model: None if it is right."""
    done = subprocess.run([braid, "test", folder, *how], capture_output=True, text=True)
    return done.stdout[-300:] + done.stderr[-300:] if done.returncode else None
