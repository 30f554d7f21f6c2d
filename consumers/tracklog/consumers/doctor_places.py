"""Where things are kept: the schema registry, the cold tier's bucket, folders of this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracklog.consumers.doctor_check import Check, tried
from tracklog.infra.clock import Entropy
from tracklog.infra.settings import Settings
from tracklog.infra.wiring import registered_schemas, registry_of
from tracklog.schemas.errors import ColdError, SettingsError

if TYPE_CHECKING:
    from tracklog.infra.cold.place import Place

__all__ = ["bucket", "folders", "registry"]

PROBE: Final = "_tracklog/doctor"
PROBE_BYTES: Final = b"tracklog doctor: a file to see that the bucket takes one\n"


def registry(settings: Settings) -> Check:
    """Reachable, has our schemas, and refuses what old readers could not read. Raises RegistryError."""
    if settings.registry.framing_used == "single-object":
        return Check("registry", None, "none is used: records carry the fingerprint of their schema")
    from tracklog.infra.registry import COMPATIBILITY

    client, wanted = registry_of(settings), registered_schemas(settings)
    missing = [one.subject for one in wanted if not client.holds(one)]
    there = sorted({one.subject for one in wanted} - set(missing))
    loose = [subject for subject in there if client.compatibility_of(subject) != COMPATIBILITY]
    wrong = [f"no schema of {_few(missing)}"] if missing else []
    wrong += [f"not {COMPATIBILITY}: {_few(loose)}"] if loose else []
    if wrong:
        return Check("registry", False, f"{client.url}: {'; '.join(wrong)}", "tracklog topics apply registers them")
    return Check("registry", True, f"{client.url} has all {len(wanted)} schemas, {COMPATIBILITY}")


def _few(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"


def bucket(settings: Settings, entropy: Entropy, timeout_s: float) -> Check:
    """Whether the cold tier takes a file, takes it once, gives it back and lets it be removed."""
    try:
        from tracklog.infra.cold.place import Place
    except ImportError:
        return Check("cold", None, "the extra export is not installed")
    cold = settings.cold
    place = Place(cold.url, cold.store_options(), min(cold.timeout_s, timeout_s))
    if place.folder is not None and not place.folder.is_dir():
        return Check("cold", None, f"nothing was exported to {cold.url}")
    try:
        return _probed(place, f"{PROBE}-{entropy.nonce().hex()}")
    except ColdError as error:
        return Check(
            "cold", False, error.message, "is there such a place? check cold.url, [cold.options] and its rights"
        )


def _probed(place: Place, path: str) -> Check:
    if place.folder is not None:
        place.stage(path, PROBE_BYTES)
    elif not place.create(path, PROBE_BYTES) or place.create(path, PROBE_BYTES):
        place.remove(path)
        fix = "commits rest on conditional puts (If-None-Match): use another store"
        return Check("cold", False, f"{place.uri} writes a file a second time though it was told not to", fix)
    whole = place.text(path) == PROBE_BYTES.decode()
    place.remove(path)
    if not whole:
        return Check("cold", False, f"{place.uri} does not give back what was written", "use another store")
    return Check("cold", True, f"{place.uri} takes a file once, gives it back, and removes it")


def folders(settings: Settings, secrets: Path | None) -> Iterator[Check]:
    """The folder of data, and that of secrets where there is one."""
    yield tried("home", lambda: _home(Path(settings.home)))
    if secrets is not None:
        yield tried("secrets", lambda: _secrets(secrets))


def _home(home: Path) -> Check:
    """What holds prompts and results should be nobody else's; what cannot be written is no home."""
    place = next(one for one in (home, *home.absolute().parents) if one.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        return Check("home", False, f"{place} cannot be written by this user", f"chown it, or set home (now {home})")
    if place != home:
        return Check("home", None, f"{home} is not there yet; {place} can be written")
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & stat.S_IWOTH:
        return Check("home", False, f"{home} can be written by everybody ({mode:o})", f"chmod o-w {home}")
    if mode & stat.S_IROTH:
        return Check("home", None, f"{home} can be read by everybody ({mode:o})", f"chmod o-rx {home}")
    return Check("home", True, f"{home} is this user's and its group's ({mode:o})")


def _secrets(folder: Path) -> Check:
    """Readable by everybody is a file of an open folder; a closed folder closes all that is in it."""
    if not folder.is_dir():
        raise SettingsError(f"{folder} is no folder of secrets", hint="unset TRACKLOG_SECRETS, or name another")
    if not folder.stat().st_mode & stat.S_IXOTH:
        return Check("secrets", True, f"{folder} is closed to others")
    files = sorted(one for one in folder.iterdir() if one.is_file())
    open_ones = [one.name for one in files if one.stat().st_mode & stat.S_IROTH]
    if open_ones:
        return Check("secrets", False, f"{folder}: everybody can read {', '.join(open_ones)}", f"chmod o-rwx {folder}")
    return Check("secrets", True, f"{folder}: {len(files)} files, none of which everybody can read")
