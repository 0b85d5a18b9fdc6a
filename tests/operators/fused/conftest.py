from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from torchcno.operators.fused import choice


@pytest.fixture(scope="session", autouse=True)
def interpreter_without_detours() -> Iterator[None]:
    """Triton's interpreter in half its time, without two things that it does for nothing.

    It patches its language anew for every function that a program calls, and it computes whether
    integers overflow, which it would tell in its debugging mode alone.
    """
    if torch.cuda.is_available() or not choice.HAS_TRITON:
        yield
        return
    from triton import language
    from triton.runtime import interpreter

    def patch_once(function: Callable) -> object:
        used = [m for m in function.__globals__.values() if m is language or m is language.core]
        if any(language.core.is_builtin(module.load) for module in used):
            return patch(function)
        return None

    patch, builder = interpreter._patch_lang, interpreter.interpreter_builder
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(interpreter, "_patch_lang", patch_once)
        patches.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))
        yield
