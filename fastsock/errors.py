"""Errors of fastsock itself. Everything that a socket call raises is the stdlib's."""

from __future__ import annotations

__all__ = ["SettingError"]


class SettingError(ValueError):
    """A setting out of range. `setting`, `value` and `permitted` say which, what and what it may be."""

    def __init__(self, setting: str, value: object, permitted: str) -> None:
        super().__init__(f"{setting} (FASTSOCK_{setting.upper()}) is {value!r}, but must be {permitted}")
        self.setting = setting
        self.value = value
        self.permitted = permitted
