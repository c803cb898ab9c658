# SPDX-License-Identifier: Apache-2.0
"""Exception texts that may be shown: without credentials, of bounded length (spec 1.6)."""

from __future__ import annotations

import re

_CREDENTIALS_IN_URL = re.compile(r"(\w+://)[^/\s:@]*:[^/\s@]*@")
_SECRET_SETTING = re.compile(r"(?i)\b(password|passwd|secret|token|api_?key)\b(\s*[=:]\s*)\S+")
_LENGTH_MAX = 500


def redact(exc: BaseException) -> str:
    """Return ``Type: text`` of an exception with secrets replaced by ``***``."""
    text = " ".join(str(exc).split())
    text = _CREDENTIALS_IN_URL.sub(r"\1***@", text)
    text = _SECRET_SETTING.sub(r"\1\2***", text)
    name = type(exc).__name__
    return f"{name}: {text}"[:_LENGTH_MAX] if text else name
