"""The hashes that `weightpress selftest` holds (src/job/selftest_tensors.cpp) are those of what entropack makes of its built-in tensors.

The tensors are made again here, from the description in that file, so the hash of their bytes shows whether both are the same.
    test_selftest_tensors.py --print      the rows for that file
"""
import hashlib
import pathlib
import re
import sys
import unittest

import numpy as np

import official_entropack

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "src" / "job" / "selftest_tensors.cpp"
BUFFERS = ("payload", "offsets", "states", "decode_tables", "lane_modes", "layout")
LARGEST_TILE = 2**31 - 1
# In the order of the file, whose first has the seed 0: dtype, elements, kinds of lanes, settings.
TENSORS = [
    ("int8", 10000, ["bell"], {}),
    ("bfloat16", 20001, ["flat", "steep"], {}),
    ("float16", 12345, ["bell", "mostly one"], {"tile_elements": 1000, "probability_bits": 11}),
    ("float32", 9100, ["flat", "bell", "constant", "steep"], {"tile_elements": 1001, "probability_bits": 12}),
    ("int64", 6000, ["bell", "steep"] + ["constant"] * 6, {}),
    ("uint8", 5000, ["constant"], {"tile_elements": LARGEST_TILE, "probability_bits": 12, "raw_lane_threshold": 8.0}),
    ("int16", 1001, ["bell", "flat"], {"tile_elements": 33}),
    ("uint64", 1, ["flat"] * 8, {}),
    ("uint32", 8000, ["bell", "steep", "flat", "constant"], {"probability_bits": 10, "raw_lane_threshold": 3.0}),
]


def mix(values):
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)


def bits_of(values):
    """uint8[64, count], the lowest bits first."""
    return np.array([values >> np.uint64(bit) & np.uint64(1) for bit in range(64)]).astype(np.uint8)


def symbols(kind, values):
    if kind == "constant":
        return np.full(len(values), 0x3C, np.uint8)
    if kind == "flat":
        return (values & np.uint64(0xFF)).astype(np.uint8)
    if kind == "bell":  # how many bits are set
        return (96 + bits_of(values).sum(0)).astype(np.uint8)
    if kind == "steep":  # how many of the lowest bits are 0
        return (0x7C - bits_of(values | np.uint64(1 << 40)).argmax(0)).astype(np.uint8)
    assert kind == "mostly one"
    return np.where(values % np.uint64(64) == 0, values >> np.uint64(8) & np.uint64(0xFF), np.uint64(7)).astype(np.uint8)


def tensor_bytes(seed, num_elements, kinds):
    with np.errstate(over="ignore"):
        counts = np.arange(1, num_elements * len(kinds) + 1, dtype=np.uint64)
        values = mix(mix(np.array([seed], np.uint64)) + np.uint64(0x9E3779B97F4A7C15) * counts).reshape(num_elements, len(kinds))
        return np.stack([symbols(kind, values[:, lane]) for lane, kind in enumerate(kinds)], 1).tobytes()


def hashes_of(number):
    """Of the tensor, and of its six buffers."""
    dtype, num_elements, kinds, settings = TENSORS[number]
    data = tensor_bytes(number, num_elements, kinds)
    container = official_entropack.encode(data, dtype, [num_elements], **settings)
    assert container.compress_method == "tile_ans", container.compress_method
    assert official_entropack.decode(container) == data
    buffers = [official_entropack.bytes_of(container.buffers[name]) for name in BUFFERS]
    return [hashlib.sha256(content).hexdigest() for content in [data, *buffers]]


class SelftestTensors(unittest.TestCase):
    def test_every_hash(self):
        found = re.findall(r'"([0-9a-f]{64})"', SOURCE.read_text())
        self.assertEqual(len(found), 7 * len(TENSORS))
        for number in range(len(TENSORS)):
            with self.subTest(tensor=TENSORS[number]):
                self.assertEqual(found[7 * number:7 * number + 7], hashes_of(number))


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        for tensor_number in range(len(TENSORS)):
            print("{" + ",\n ".join(f'"{digits}"' for digits in hashes_of(tensor_number)) + "},")
    else:
        unittest.main()
