"""Rows of JSON, one per line, each with a check of its own text.

A row's last key is `check`, a digest of the row without it. Rows from before there were checks are
read as they are.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

_SEALED = re.compile(rb'(\{.*), "check": "([0-9a-f]{16})"\}', re.DOTALL)
# A flipped bit spoils the name or the digest, not both: what is left tells that there was a check.
_TRACE = re.compile(rb'check|"[0-9a-f]{16}"\}?.?$', re.DOTALL)


def seal(row: Mapping[str, Any]) -> bytes:
    """A row as a line, with its check."""
    text = json.dumps(row).encode()
    return text[:-1] + b', "check": "%b"}\n' % _digest(text)


def unseal(content: bytes) -> list[dict[str, Any]]:
    """The rows of a file, but for a last one that is being written; ValueError if one is damaged.

    The message says which row it is, and leaves it to the caller to name the file.
    """
    *lines, last = content.split(b"\n")
    if _SEALED.fullmatch(last[:-1]):  # a whole row, and not the end of its line
        raise ValueError(f"row {len(lines) + 1} is damaged")
    return [_read(line, i) for i, line in enumerate(lines, 1)]


def _read(line: bytes, number: int) -> dict[str, Any]:
    """One row without its check."""
    sealed = _SEALED.fullmatch(line)
    text = sealed[1] + b"}" if sealed else line
    try:
        is_whole = sealed[2] == _digest(text) if sealed else not _TRACE.search(line)
        row = json.loads(text) if is_whole else None
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ValueError(f"row {number} is damaged")
    return row


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()
