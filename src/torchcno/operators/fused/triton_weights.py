"""The Triton program behind `fused/weights.py`; importing this file needs Triton."""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def copy_and_turn(
    addresses, sizes, tiles, COUNT, TILES,
    TYPE: tl.constexpr, STRAIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A tile of one tap of W, as it lies and turned, rounded to TYPE.

    W lies as (out, tap, in) in float32, and turned as (in, last tap first, out).
    """
    tile = tl.program_id(0)
    n, tap = tl.load(tiles + tile), tl.load(tiles + TILES + tile)
    o = tl.load(tiles + 2 * TILES + tile) + tl.arange(0, BLOCK)
    i = tl.load(tiles + 3 * TILES + tile) + tl.arange(0, BLOCK)
    O, I = tl.load(sizes + n), tl.load(sizes + COUNT + n)  # noqa: E741
    TAPS = tl.load(sizes + 2 * COUNT + n)
    source = tl.load(addresses + n).to(tl.pointer_type(tl.float32))
    straight = tl.load(addresses + COUNT + n).to(tl.pointer_type(TYPE))
    turned = tl.load(addresses + 2 * COUNT + n).to(tl.pointer_type(TYPE))
    mask = (o < O)[:, None] & (i < I)[None, :]
    at = (o[:, None] * TAPS + tap) * I + i[None, :]
    W = tl.load(source + at, mask=mask, other=0.0).to(TYPE)
    if STRAIGHT:
        tl.store(straight + at, W, mask=mask)
    at = (i[:, None] * TAPS + (TAPS - 1 - tap)) * O + o[None, :]
    tl.store(turned + at, tl.trans(W), mask=(i < I)[:, None] & (o < O)[None, :])
