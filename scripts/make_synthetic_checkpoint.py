#!/usr/bin/env python3
"""Writes a seeded model with the tensor names of all-MiniLM-L6-v2 and normal weights, in BF16.

    make_synthetic_checkpoint.py OUT [--seed N] [--weights N]     OUT: a folder; N: about how many weights

For machines that cannot download the trained model: architectures/bert.json fits both. Needs numpy only.
"""
import argparse
import json
import os
import struct
import sys

import numpy as np

# Types of the tensors here, low to high as the safetensors package orders them: files hold the highest first, then by name.
DTYPES = ("BF16", "I64")
NUM_LAYERS, NUM_HEADS, NUM_POSITIONS = 6, 12, 512
LAYER_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")


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
    """float32 array without NaN -> uint16 array of BF16 patterns, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    return ((bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype("<u2")


def model_shape(num_weights):
    """(hidden size, vocabulary) with about num_weights weights, in the proportions of the trained model."""
    hidden = max(1, round((num_weights * 0.468 / (12 * NUM_LAYERS + 1)) ** 0.5 / NUM_HEADS)) * NUM_HEADS
    others = (12 * NUM_LAYERS + 1) * hidden * hidden + NUM_POSITIONS * hidden
    return hidden, max(1, round((num_weights - others) / hidden))


def tensor_shapes(hidden, vocabulary):
    """{name: shape} of the floating-point tensors."""
    shapes = {"embeddings.word_embeddings.weight": [vocabulary, hidden],
              "embeddings.position_embeddings.weight": [NUM_POSITIONS, hidden],
              "embeddings.token_type_embeddings.weight": [2, hidden],
              "embeddings.LayerNorm.weight": [hidden], "embeddings.LayerNorm.bias": [hidden],
              "pooler.dense.weight": [hidden, hidden], "pooler.dense.bias": [hidden]}
    linears = {"attention.self.query": [hidden, hidden], "attention.self.key": [hidden, hidden],
               "attention.self.value": [hidden, hidden], "attention.output.dense": [hidden, hidden],
               "intermediate.dense": [4 * hidden, hidden], "output.dense": [hidden, 4 * hidden]}
    for layer in range(NUM_LAYERS):
        for name, shape in linears.items():
            shapes[f"encoder.layer.{layer}.{name}.weight"] = shape
            shapes[f"encoder.layer.{layer}.{name}.bias"] = shape[:1]
        for name in LAYER_NORMS:
            shapes[f"encoder.layer.{layer}.{name}.weight"] = [hidden]
            shapes[f"encoder.layer.{layer}.{name}.bias"] = [hidden]
    return shapes


def make_checkpoint(out, seed, num_weights):
    hidden, vocabulary = model_shape(num_weights)
    random = np.random.Generator(np.random.PCG64(seed))
    tensors = {"embeddings.position_ids":
               ("I64", [1, NUM_POSITIONS], np.arange(NUM_POSITIONS, dtype="<i8").view(np.uint8))}
    for name, shape in tensor_shapes(hidden, vocabulary).items():
        values = random.standard_normal(int(np.prod(shape)), dtype=np.float32) * np.float32(0.02)
        if name.endswith("LayerNorm.weight"):
            values += 1
        tensors[name] = ("BF16", shape, to_bf16(values).view(np.uint8))
    config = {"architectures": ["BertModel"], "hidden_act": "gelu", "hidden_size": hidden, "initializer_range": 0.02,
              "intermediate_size": 4 * hidden, "layer_norm_eps": 1e-12, "max_position_embeddings": NUM_POSITIONS,
              "model_type": "bert", "num_attention_heads": NUM_HEADS, "num_hidden_layers": NUM_LAYERS,
              "torch_dtype": "bfloat16", "type_vocab_size": 2, "vocab_size": vocabulary}
    os.makedirs(out, exist_ok=True)
    write_safetensors(os.path.join(out, "model.safetensors"), tensors, {"format": "pt"})
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(config, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weights", type=int, default=22_681_344)
    options = parser.parse_args()
    try:
        make_checkpoint(options.out, options.seed, options.weights)
    except OSError as error:
        print(f"make_synthetic_checkpoint: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
