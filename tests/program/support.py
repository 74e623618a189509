"""What the end-to-end tests share: running the program, small models, definitions, reading outputs.

WEIGHTPRESS names the program; without it the release build is taken. Needs numpy only.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))

import df11_reference_model as reference  # noqa: E402  (found through the line above)

PROGRAM = os.environ.get("WEIGHTPRESS") or str(ROOT / "build" / "release" / "weightpress")
GOLDEN = ROOT / "tests" / "golden" / "df11"
BUFFERS = reference.BUFFERS
CONFIG = b'{\n  "model_type": "bert",\n  "layer_norm_eps": 1e-12,\n  "initializer_range": 0.020\n}\n'


def run(*arguments, timeout=600, **options):
    """Runs the program. Returns its exit code, stdout and stderr as text."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    return subprocess.run([PROGRAM, *map(str, arguments)], text=True, errors="surrogateescape", timeout=timeout,
                          check=False, **options)


def compress(source, out, definition, *options, **kwargs):
    return run("compress", source, "-o", out, "--arch", definition, *options, **kwargs)


def words(seed, count, sigma=0.02):
    """BF16 words of normal weights."""
    values = np.random.Generator(np.random.PCG64(seed)).standard_normal(count).astype(np.float32) * np.float32(sigma)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def words_of_exponents(exponents, random):
    """BF16 words with these exponents and random signs and mantissas."""
    sign_mantissa = random.integers(0, 256, len(exponents), dtype=np.uint16)
    exponents = np.asarray(exponents, np.uint16)
    return ((sign_mantissa & 0x80) << 8 | exponents << 7 | sign_mantissa & 0x7F).astype("<u2")


def bf16(array, shape=None):
    """A tensor for reference.write_safetensors."""
    return "BF16", list(shape if shape is not None else [len(array)]), np.asarray(array, "<u2").tobytes()


def write_model(folder, tensors, config=CONFIG, metadata=None):
    """tensors: {name: (dtype, shape, bytes)}. Returns the folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    reference.write_safetensors(folder / "model.safetensors", tensors, metadata or {"format": "pt"})
    if config is not None:
        (folder / "config.json").write_bytes(config)
    return folder


def write_definition(path, pattern_dict, **rules):
    pathlib.Path(path).write_text(json.dumps({
        "name": "test", "layout": "transformers", "family": "test", "strip_prefixes": [],
        "pattern_dict": pattern_dict, "rules": rules, "provenance": "test"}))
    return path


def read_tree(folder):
    """{path inside folder: bytes}"""
    folder = pathlib.Path(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def shard_path(out, unit):
    return pathlib.Path(out) / (unit.replace(".", "_") + ".safetensors")


def read_unit(out, unit):
    """The unit's buffers as bytes, out of its shard."""
    tensors, _ = reference.read_safetensors(shard_path(out, unit))
    return {buffer: bytes(tensors[f"{unit}.{buffer}"][2]) for buffer in BUFFERS}


def decode(unit):
    """(weights, bits used, why the official kernel could not load the unit or None)"""
    weights, bits, last = reference.decode_unit(unit)
    luts = np.frombuffer(unit["luts"], np.uint8).reshape(-1, 256)
    return weights, bits, reference.not_loadable({**unit, "luts": luts}, bits, last)


def split_positions(sizes):
    return np.cumsum(np.array(sizes, "<i8"))[:-1].astype("<i8").tobytes()


def mentions(text, *needed):
    """Whether every one of needed (regular expressions, any case) is found in text."""
    return all(re.search(pattern, text, re.IGNORECASE) for pattern in needed)
