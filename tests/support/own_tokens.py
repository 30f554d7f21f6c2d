"""Where tokens come from, as people write it (`log.oauth_token`): signed here with the key in OWN_TOKENS, a folder.

Each one is noted in its file `made`. While there is a file `broken` none is given. `TOKEN_S` says how long one is good.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import ECKey

AUDIENCE = "kafka"
ISSUER = "https://tokens.example"


def token() -> tuple[str, float]:
    folder = Path(os.environ["OWN_TOKENS"])
    if (folder / "broken").exists():
        raise OSError("the vault is sealed")
    key = ECKey.import_key(json.loads((folder / "signing.json").read_text()))
    now = int(time.time())
    ends = now + int(os.environ["TOKEN_S"])
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": os.environ["TOKEN_USER"], "iat": now - 60, "exp": ends}
    made = jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key)
    with (folder / "made").open("a") as file:
        file.write(f"{os.environ['TOKEN_USER']} {ends}\n")
    return made, float(ends)
