#!/usr/bin/env python3
"""Times Tile-ANS on one core and entropack's eager code on the same BF16 tensor, in turn in one run, best of several.

usage: bench/tile_ans_speed.py BENCH [--tensor FILE | --mib N] [--repeat N]

BENCH: the program bench_tile_ans. FILE: a tensor's bytes; without it normal weights, sigma 0.02. Figures are GB/s of the tensor's
bytes in processor time, decimal. Encoding is what entropack's `compress` does: histogram, plan, encode. Both sides read back what
they encoded before anything is timed, and must store equally many bytes. Needs build/python (scripts/setup-python).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "official" / "entropack"))

import official_entropack  # noqa: E402  (found through the line above)
import numpy as np  # noqa: E402

STAGES = ("Memcpy", "Encode", "HistogramPlanEncode", "Decode")


class Speed(typing.NamedTuple):
    num_bytes: int
    ours: dict  # {(stage, "portable", "avx2" or "" for memcpy): seconds}, the best
    reference: dict  # {"encode", "decode": seconds}, the best
    stored: tuple  # bytes that we store, and the reference


def normal_weights(num_bytes):
    """Storage bytes of BF16 weights, cut."""
    values = np.random.Generator(np.random.PCG64(1)).standard_normal(num_bytes // 2, np.float32) * np.float32(0.02)
    return (values.view("<u4") >> 16).astype("<u2").tobytes()


def run_bench(bench, tensor, min_time):
    """{(stage, SIMD level): seconds}, bytes stored"""
    environment = {**os.environ, "WP_BENCH_TENSOR": str(tensor), "WP_BENCH_THREADS": "1"}
    done = subprocess.run([bench, f"--benchmark_filter=BM_({'|'.join(STAGES)})/", "--benchmark_format=json",
                           f"--benchmark_min_time={min_time}"], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{bench}: {done.stderr}")
    seconds, stored = {}, 0
    for told in json.loads(done.stdout)["benchmarks"]:
        stage, _, num_bytes, back_end = told["name"].split("/")[:4]
        seconds[stage.removeprefix("BM_"), back_end.removeprefix("cpu1").removeprefix("_")] = told["cpu_time"] / 1e3
        stored = round(told["ratio"] * int(num_bytes))
    return seconds, stored


def measure(bench, data, repeat, min_time=0.3):
    """A Speed, of the BF16 tensor with these storage bytes; min_time: seconds that bench_tile_ans takes for a stage, at least."""
    container = official_entropack.encode(data, "bfloat16", [len(data) // 2])
    if official_entropack.decode(container) != data:
        sys.exit("entropack does not bring the tensor back")
    reference_stores = container.storage_nbytes(include_header=False)
    ours, reference, stored = {}, {}, 0

    def once(name, work, *arguments):
        start = time.process_time()
        work(*arguments)
        reference[name] = min(time.process_time() - start, reference.get(name, float("inf")))

    with tempfile.NamedTemporaryFile() as tensor:
        tensor.write(data)
        tensor.flush()
        for _ in range(repeat):
            seconds, stored = run_bench(bench, tensor.name, min_time)
            ours = {key: min(now, ours.get(key, now)) for key, now in seconds.items()}
            once("encode", official_entropack.encode, data, "bfloat16", [len(data) // 2])
            once("decode", official_entropack.decode, container)
    return Speed(len(data), ours, reference, (stored, reference_stores))


def factors(speed):
    """{("encode" or "decode", SIMD level): how many times as fast as the reference}"""
    same_work = {"HistogramPlanEncode": "encode", "Decode": "decode"}
    return {(same_work[stage], level): speed.reference[same_work[stage]] / seconds for (stage, level), seconds in speed.ours.items()
            if stage in same_work}


def print_table(speed):
    def row(name, seconds, factor=None):
        print(f"| {name} | {speed.num_bytes / seconds / 1e9:.3g} | {f'{factor:.0f}' if factor else ''} |")

    told = factors(speed)
    print("| | GB/s | times the reference |\n|---|---|---|")
    row("memcpy", speed.ours["Memcpy", ""])
    for level in sorted({level for _, level in speed.ours if level}, reverse=True):  # portable first
        row(f"{level}: encode", speed.ours["Encode", level])
        row(f"{level}: histogram + plan + encode", speed.ours["HistogramPlanEncode", level], told["encode", level])
        row(f"{level}: decode, all checks", speed.ours["Decode", level], told["decode", level])
    for name, seconds in speed.reference.items():
        row(f"entropack {official_entropack.VERSION}, eager: {name}", seconds, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bench")
    parser.add_argument("--tensor", type=pathlib.Path)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    data = arguments.tensor.read_bytes() if arguments.tensor else normal_weights(arguments.mib << 20)
    speed = measure(arguments.bench, data[:len(data) // 2 * 2], arguments.repeat)
    if speed.stored[0] != speed.stored[1]:
        sys.exit(f"bench_tile_ans stores {speed.stored[0]} bytes, entropack {speed.stored[1]}")
    ratio = speed.stored[0] / speed.num_bytes
    print(f"{speed.num_bytes} bytes of BF16, stored in {100 * ratio:.2f}%; best of {arguments.repeat}\n")
    print_table(speed)


if __name__ == "__main__":
    main()
