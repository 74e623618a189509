#!/usr/bin/env python3
"""Casts the F32 and F16 tensors of a safetensors model to BF16, rounding to nearest, ties to even.

    cast_to_bf16.py SOURCE OUT      SOURCE: a .safetensors file or a folder of them; OUT: a file or a folder likewise

Tensors of other dtypes, config.json, generation_config.json and the metadata stay as they are. A NaN becomes a quiet NaN
of the same sign; a value that rounds past the largest BF16 becomes Inf, as in every cast. Needs numpy only.
"""
import argparse
import json
import os
import shutil
import struct
import sys

import numpy as np

# Low to high, as the safetensors package orders dtypes; files hold the highest first, then by name.
DTYPES = ("BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 "
          "C64 F64 I64 U64").split()
MAX_HEADER_BYTES = 100_000_000


def read_safetensors(path):
    """Returns ({name: (dtype, shape, bytes as a memory-mapped uint8 array)}, metadata)."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(8)
        header_bytes = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= header_bytes <= min(MAX_HEADER_BYTES, size - 8):
            raise ValueError(f"{path} is not a safetensors file (header length {header_bytes}, file of {size} bytes)")
        header = json.loads(file.read(header_bytes))
    metadata = header.pop("__metadata__", None)
    data_bytes = size - 8 - header_bytes
    data = np.memmap(path, np.uint8, "r", offset=8 + header_bytes) if data_bytes else np.zeros(0, np.uint8)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if not 0 <= begin <= end <= data_bytes:
            raise ValueError(f"{path}: tensor {name} lies outside the file")
        tensors[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return tensors, metadata


def write_safetensors(path, tensors, metadata=None):
    """Writes what the safetensors package's save_file writes. tensors: {name: (dtype, shape, uint8 array or bytes)}."""
    names = sorted(tensors, key=lambda name: (-DTYPES.index(tensors[name][0]), name.encode()))
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name in names:
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            file.write(memoryview(tensors[name][2]))


def to_bf16(values):
    """float32 array -> uint16 array of BF16 patterns."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    rounded = ((bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype("<u2")  # a NaN may wrap here, and is replaced
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, (bits >> 16 | 0x40).astype("<u2"), rounded)


def cast_tensor(dtype, shape, data):
    if dtype not in ("F32", "F16"):
        return dtype, shape, data
    with np.errstate(invalid="ignore"):  # the cast of a signalling F16 NaN
        values = data.view("<f4" if dtype == "F32" else "<f2").astype("<f4", copy=False)
    return "BF16", shape, to_bf16(values).view(np.uint8)


def cast_file(source, out):
    """Returns the bytes of tensor data written."""
    tensors, metadata = read_safetensors(source)
    cast = {name: cast_tensor(*entry) for name, entry in tensors.items()}
    write_safetensors(out, cast, metadata)
    return sum(len(data) for _, _, data in cast.values())


def cast_folder(source, out):
    names = sorted(name for name in os.listdir(source) if name.endswith(".safetensors"))
    if not names:
        raise ValueError(f"{source} holds no .safetensors file")
    os.makedirs(out, exist_ok=True)
    total = sum(cast_file(os.path.join(source, name), os.path.join(out, name)) for name in names)
    for name in ("config.json", "generation_config.json"):
        if os.path.exists(os.path.join(source, name)):
            shutil.copyfile(os.path.join(source, name), os.path.join(out, name))
    for name in os.listdir(source):
        if name.endswith(".safetensors.index.json"):
            with open(os.path.join(source, name), encoding="utf-8") as file:
                index = json.load(file)
            index.setdefault("metadata", {})["total_size"] = total
            with open(os.path.join(out, name), "w", encoding="utf-8") as file:
                json.dump(index, file, indent=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out")
    options = parser.parse_args()
    try:
        if os.path.realpath(options.source) == os.path.realpath(options.out):
            raise ValueError(f"{options.out} is the source itself: name another output")
        (cast_folder if os.path.isdir(options.source) else cast_file)(options.source, options.out)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"cast_to_bf16: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
