"""Tile-ANS in safetensors files, for the tests of tests/program: golden containers, tensors of every dtype, whole files.

A file is written here byte by byte, in the order of the safetensors package. Standard library and numpy only.
"""
import json
import math
import pathlib

import numpy as np

import support
from sources import DTYPE_BITS, DTYPE_RANK, compact, file_bytes
from support import reference

GOLDEN = support.ROOT / "tests" / "golden" / "tile_ans"
PREFIX = "._entropack."
# Names of safetensors and of PyTorch.
TORCH_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
               "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2": "float8_e5m2", "F8_E5M2FNUZ": "float8_e5m2fnuz", "I64": "int64",
               "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
               "BOOL": "bool"}
DTYPES = {torch: dtype for dtype, torch in TORCH_NAMES.items()}
BUFFERS = {"payload": ("payload.u16", "U16"), "offsets": ("offsets.u32", "U32"), "states": ("states.u32", "U32"),
           "decode_tables": ("decode_tables.u32", "U32"), "lane_modes": ("lane_modes.u8", "U8"), "layout": ("layout.i64", "I64")}


def safetensors_bytes(tensors, metadata=None):
    """The file that save_file writes of {name: (dtype, shape, bytes)}."""
    order = sorted(tensors, key=lambda name: (-DTYPE_RANK[tensors[name][0]], name.encode()))
    header, data = ({"__metadata__": metadata} if metadata is not None else {}), []
    at = 0
    for name in order:
        dtype, shape, content = tensors[name]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(content)]}
        at += len(content)
        data.append(bytes(content))
    return file_bytes(header, b"".join(data))


def read_file(path):
    """({name: (dtype, shape, bytes)}, metadata)"""
    tensors, metadata = reference.read_safetensors(path)
    return {name: (dtype, shape, bytes(content)) for name, (dtype, shape, content) in tensors.items()}, metadata


def golden_cases():
    """(name, meta, folder) of each."""
    for case in json.loads((GOLDEN / "index.json").read_text())["cases"]:
        folder = GOLDEN / case["name"]
        yield case["name"], json.loads((folder / "meta.json").read_text()), folder


def golden_groups():
    """{settings as JSON: those of golden_cases() with them}"""
    groups = {}
    for case in golden_cases():
        groups.setdefault(json.dumps(case[1]["config"]), []).append(case)
    return groups


def golden_source(meta, folder):
    """(dtype, shape, bytes)"""
    return DTYPES[meta["dtype"]], meta["shape"], (folder / "input.bin").read_bytes()


def golden_container(name, meta, folder):
    """{name of a stored tensor: (dtype, shape, bytes)} of a tensor `name`."""
    header = (folder / "header.json").read_bytes()
    stored = {f"{name}{PREFIX}header": ("U8", [len(header)], header)}
    if meta["container"] == "raw":
        stored[f"{name}{PREFIX}buffers.data"] = (DTYPES[meta["dtype"]], meta["shape"], (folder / "data.bin").read_bytes())
    else:
        for buffer, (file, dtype) in BUFFERS.items():
            stored[f"{name}{PREFIX}buffers.{buffer}"] = dtype, meta["buffer_shapes"][buffer], (folder / file).read_bytes()
    return stored


def stored_bytes(container):
    return sum(len(content) for _, _, content in container.values())


def options_of(settings):
    return [word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), value)]


def tensor(dtype, count, seed, shape=None):
    """A tensor that shrinks: of small values, whatever the dtype."""
    random = np.random.Generator(np.random.PCG64(seed))
    values = random.standard_normal(count)
    width = DTYPE_BITS[dtype] // 8
    if dtype == "F32":
        array = (0.02 * values).astype("<f4")
    elif dtype == "F16":
        array = (0.02 * values).astype("<f2")
    elif dtype == "BF16":
        array = ((0.02 * values).astype("<f4").view(np.uint32) >> 16).astype("<u2")
    elif dtype.startswith("F8"):
        array = (np.clip(np.round(8 * values), -60, 60).astype(np.int64) & 0xFF).astype(np.uint8)
    elif dtype == "BOOL":
        array = (values > 1.5).astype(np.uint8)
    else:
        array = np.abs(np.round(12 * values)).astype(f"<u{width}") if dtype[0] == "U" else np.round(12 * values).astype(f"<i{width}")
    assert array.nbytes == count * width
    return dtype, list(shape or [count]), array.tobytes()


def write_folder(folder, files, metadata=None, index="model.safetensors.index.json", side_files=None):
    """files: {name: {tensor: (dtype, shape, bytes)}}. The index, if there is one, is that of the transformers package."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    for name, tensors in files.items():
        (folder / name).write_bytes(safetensors_bytes(tensors, metadata))
    if index:
        (folder / index).write_text(index_text(files))
    for name, content in (side_files or {}).items():
        (folder / name).write_bytes(content)
    return folder


def index_text(files):
    weight_map = {name: file for file, tensors in files.items() for name in tensors}
    total = sum(len(content) for tensors in files.values() for _, _, content in tensors.values())
    return json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2, sort_keys=True) + "\n"


def num_elements(shape):
    return math.prod(shape)


def header_of(container):
    """The JSON of a container's header and the name of the tensor that holds it."""
    name = next(name for name in container if name.endswith(f"{PREFIX}header"))
    return name, json.loads(container[name][2])


def with_header(container, change):
    """The container with another header: change(dict) returns what is to stand there, an object or bytes."""
    name, header = header_of(container)
    changed = change(header)
    content = changed if isinstance(changed, bytes) else compact(changed).encode()
    return {**container, name: ("U8", [len(content)], content)}
