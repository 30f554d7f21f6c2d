"""Named bounds, with units. Relations between them are asserted when the module is imported."""

from __future__ import annotations

from typing import Final

TRAJECTORY_ID_BYTES_MAX: Final = 256
LABELS_MAX: Final = 32
TEXT_FIELD_CHARS_MAX: Final = 1024
"""Names, reasons, versions: anything that is not a body."""
BODY_INLINE_BYTES_MAX: Final = 64 * 1024
"""A body above this goes to the blob store before the event that names it."""
EVENT_BYTES_MAX: Final = 900 * 1024
"""The encoded value of one record, framing included. Leaves room for headers under the broker's 1 MiB."""
MESSAGE_BYTES_MAX: Final = 1024 * 1024
"""`max.message.bytes` of the topics and `message.max.bytes` of the producer."""
ACCEPTED_WINDOW: Final = 64
"""How many accepted hashes a head remembers, to tell a retry from a fork."""
CALLS_PER_TURN_MAX: Final = 128
CHILDREN_MAX: Final = 100
"""Child runs that one trajectory spawns, unless its setup says otherwise."""
DEPTH_MAX: Final = 4
"""How deep runs spawn runs, unless the setup says otherwise; what nobody has spawned has depth 0."""
PARTITIONS_DEFAULT: Final = 12
PARTITIONS_MAX: Final = 1024

assert BODY_INLINE_BYTES_MAX < EVENT_BYTES_MAX < MESSAGE_BYTES_MAX
assert ACCEPTED_WINDOW >= 2
