"""What may be printed of the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

SECRET_SHOWN: Final = "***"

_SECRET_NAME = re.compile(r"password|secret|token|jaas|pem$|private|access_key|service_account_key")


def is_secret(name: str) -> bool:
    """Whether an option of this name is hidden from view. In memory every pass-through option is a secret."""
    return _SECRET_NAME.search(name.lower()) is not None


def without_password(url: str) -> str:
    """The address with any user and password replaced by `***`."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=f"{SECRET_SHOWN}@{parts.netloc.rpartition('@')[2]}"))


def public_value(name: str, value: object) -> object:
    """A setting's value as it may be shown: plain, or masked when its name says that it is a secret."""
    if isinstance(value, Mapping) and name == "headers":
        return dict.fromkeys(value, SECRET_SHOWN)
    if isinstance(value, Mapping):
        return {key: public_value(key, item) for key, item in value.items()}
    if not isinstance(value, SecretStr):
        return without_password(value) if isinstance(value, str) and "://" in value else value
    text = value.get_secret_value()
    return SECRET_SHOWN if text and is_secret(name) else text
