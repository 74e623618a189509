#!/usr/bin/env python3
"""The official Tile-ANS code as a program: tensors as raw files, containers as folders or in safetensors files.

    reference.py encode IN.bin --dtype bfloat16 --shape 2,3 [--tile-elements N] [--probability-bits N]
                 [--raw-lane-threshold X] -o FOLDER      (--shape '' for a scalar)
    reference.py decode FOLDER -o OUT.bin
    reference.py validate FOLDER                         the package's full check of a container
    reference.py pack FOLDER... -o FILE.safetensors      each container under the name of its folder
    reference.py unpack FILE.safetensors -o FOLDER       a folder for each container in it
    reference.py batch                                   requests as JSON lines from stdin, a JSON line to stdout for each

A request names its `op` and what the options above do: {"op": "encode", "input": "a.bin", "dtype": "int8", "shape": [5],
"tile_elements": 3, "output": "a"}; pack takes "tensors": {name: folder}, and "metadata" for the file. The answer has "ok", then
"error" as "<exception>: <message>" or what came of it; encode and decode tell the "seconds" that the package took.
Exit codes: 0 done, 1 the package or the files refuse, 2 usage. A batch ends with 0 whatever its answers are.
"""
import argparse
import json
import pathlib
import sys
import time

import official_entropack

SETTINGS = ("tile_elements", "probability_bits", "raw_lane_threshold")


def encode(request):
    data = pathlib.Path(request["input"]).read_bytes()
    settings = {name: request[name] for name in SETTINGS if name in request}
    start = time.perf_counter()
    container = official_entropack.encode(data, request["dtype"], request["shape"], **settings)
    seconds = time.perf_counter() - start
    official_entropack.write_folder(container, request["output"])
    return {"container": container.compress_method, "stored_bytes": container.storage_nbytes(), "seconds": seconds}


def decode(request):
    container = official_entropack.read_folder(request["input"])
    start = time.perf_counter()
    data = official_entropack.decode(container)
    seconds = time.perf_counter() - start
    pathlib.Path(request["output"]).write_bytes(data)
    return {"seconds": seconds}


def validate(request):
    official_entropack.validate(official_entropack.read_folder(request["input"]))
    return {}


def pack(request):
    containers = {name: official_entropack.read_folder(folder) for name, folder in request["tensors"].items()}
    official_entropack.write_safetensors(request["output"], containers, request.get("metadata"))
    return {}


def unpack(request):
    containers, others = official_entropack.read_safetensors(request["input"])
    for name, container in containers.items():
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"the tensor {name!r} cannot be a folder")
        official_entropack.write_folder(container, pathlib.Path(request["output"]) / name)
    return {"tensors": list(containers), "others": sorted(others)}


OPERATIONS = {operation.__name__: operation for operation in (encode, decode, validate, pack, unpack)}


def answer(request):
    try:
        return {"ok": True, **OPERATIONS[request["op"]](request)}
    except Exception as error:  # whatever the package raises is an answer
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def batch(lines):
    for line in lines:
        if line.strip():
            print(json.dumps(answer(json.loads(line))), flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    commands = parser.add_subparsers(dest="op", required=True)
    for name, output in (("encode", True), ("decode", True), ("validate", False), ("pack", True), ("unpack", True)):
        command = commands.add_parser(name)
        command.add_argument("input", nargs="+" if name == "pack" else None)
        if output:
            command.add_argument("-o", dest="output", required=True)
        if name == "encode":
            command.add_argument("--dtype", required=True, choices=official_entropack.DTYPES)
            command.add_argument("--shape", required=True, type=lambda text: [int(size) for size in text.split(",") if text])
            command.add_argument("--tile-elements", type=int, default=argparse.SUPPRESS)
            command.add_argument("--probability-bits", type=int, default=argparse.SUPPRESS)
            command.add_argument("--raw-lane-threshold", type=float, default=argparse.SUPPRESS)
    commands.add_parser("batch")
    request = vars(parser.parse_args(arguments))
    if request["op"] == "pack":
        request["tensors"] = {pathlib.Path(folder).resolve().name: folder for folder in request["input"]}
    return request


def main():
    request = parse(sys.argv[1:])
    if request["op"] == "batch":
        batch(sys.stdin)
        return 0
    result = answer(request)
    if result["ok"]:
        print(json.dumps(result))
        return 0
    print(result["error"], file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
