#!/usr/bin/env python3
"""Times whole runs of the program beside `cp -r` of the same source, all in turn in one run, best of several.

usage: bench/compress_model.py PROGRAM MODEL OUT [--repeat N] [--threads N] [CASE ...]

MODEL: a folder with a checkpoint, e.g. one of scripts/make_synthetic_checkpoint.py. OUT: a path that does not exist; what is made
there is removed. Peak memory is the report's VmHWM. Standard library only.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

CASES = {
    "fast": ["--fast"], "safe": [],
    "fast, streamed": ["--fast", "--ram", "128M"], "safe, streamed": ["--ram", "128M"],
    "one file, fast": ["--layout", "comfyui", "--fast"], "one file, safe": ["--layout", "comfyui"],
    "one file, safe, streamed": ["--layout", "comfyui", "--ram", "128M"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", default="2")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(CASES)}")
    arguments = parser.parse_args()
    if arguments.out.exists():
        parser.error(f"{arguments.out} exists")
    cases = {name: CASES[name] for name in arguments.cases or CASES}
    report = pathlib.Path(tempfile.mkstemp(suffix=".json")[1])
    times, reports = {}, {}

    def once(name, command):
        start = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - start
        shutil.rmtree(arguments.out, ignore_errors=True)
        if seconds < times.get(name, float("inf")):
            times[name] = seconds
            if name in cases:
                reports[name] = json.loads(report.read_text())

    for _ in range(arguments.repeat):
        once("cp -r", ["cp", "-r", arguments.model, arguments.out])
        for name, options in cases.items():
            once(name, [arguments.program, "compress", arguments.model, "-o", arguments.out, "--threads", arguments.threads,
                        "--report", report, *options])
        once("estimate", [arguments.program, "estimate", arguments.model, "--threads", arguments.threads])
    report.unlink()
    print(f"| case | best of {arguments.repeat} | to cp -r | peak memory | read, histogram, encode, verify, write, sync |\n|---|---|---|---|---|")
    for name, seconds in times.items():
        done = reports.get(name)
        stages = ", ".join(f"{done['stages'][stage]['seconds']:.2f}" for stage in ("read", "histogram", "encode", "verify", "write", "sync")) \
            if done else ""
        peak = f"{done['peak_memory_bytes'] / 1e6:.0f} MB" if done else ""
        print(f"| {name} | {seconds:.2f} s | {seconds / times['cp -r']:.2f} | {peak} | {stages} |")


if __name__ == "__main__":
    main()
