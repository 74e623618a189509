"""A trained model's weights as the dtypes that models are stored in: casts of F32 arrays. numpy only.

FP8 and integers take a scale for each tensor, by its largest magnitude, as checkpoints of such weights do; the scale itself,
which belongs into a tensor of its own, is dropped.
"""
import numpy as np

# Bits of the mantissa, exponent bias, code of the largest finite number.
F8_FORMATS = {"F8_E4M3": (3, 7, 0x7E), "F8_E4M3FNUZ": (3, 8, 0x7F), "F8_E5M2": (2, 15, 0x7B), "F8_E5M2FNUZ": (2, 16, 0x7F)}


def largest(values):
    """The largest magnitude; 1 where all are zero."""
    return np.abs(values).max() or np.float32(1)


def to_bf16(values):
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def to_f8(values, dtype):
    """The largest magnitude becomes the largest number; then the nearest, ties to even."""
    mantissa_bits, bias, last = F8_FORMATS[dtype]
    codes = np.arange(last + 1)
    exponents, fractions = codes >> mantissa_bits, (codes & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    numbers = np.where(exponents == 0, 2 * fractions, 1 + fractions) * 2.0 ** (exponents - bias)
    middles = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)  # exact
    scaled = np.abs(values) * np.float32(numbers[-1] / largest(values))
    nearest = np.searchsorted(middles, scaled)
    nearest += (nearest & 1) & (np.append(middles, np.inf)[nearest] == scaled)
    signs = (values < 0) & (nearest > 0) if dtype.endswith("FNUZ") else np.signbit(values)
    return (nearest | signs << 7).astype(np.uint8)


def to_i8(values):
    """Between -127 and 127."""
    return np.rint(values * np.float32(127 / largest(values))).astype("i1")


def to_u8(values):
    """All of 0 to 255, from the smallest value to the largest: with a zero point."""
    low = values.min()
    return np.rint((values - low) * np.float32(255 / ((values.max() - low) or 1))).astype("u1")
