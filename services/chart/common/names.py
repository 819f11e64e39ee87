"""Names of nodes and links, the same for every service; pure.

A node's id is a host name: a DNS label ("bravo") or several with dots between ("bravo.lab.example.net"), in lower case
(RFC 1123). A link's id is the node that it leaves from, a colon, and the interface there.
"""

from __future__ import annotations

import hashlib
import re

LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# The last of several labels begins with a letter: an address in dots is none.
NODE = rf"({LABEL}|({LABEL}\.)+[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?)"
# Linux interface names have at most 15 characters, none of them "/" or blank; a colon would split the link's id.
INTERFACE = r"[A-Za-z0-9_.@-]{1,15}"
NODE_LENGTH_MAX = 253
LINK_LENGTH_MAX = NODE_LENGTH_MAX + 1 + 15
# X.520, ub-common-name.
COMMON_NAME_MAX = 64
_DIGEST_LENGTH = 16

_is_label = re.compile(LABEL).fullmatch
_is_node = re.compile(NODE).fullmatch


def is_label(name: str) -> bool:
    """Whether it is one DNS label of 1 to 63 characters."""
    return _is_label(name) is not None


def is_node(name: str) -> bool:
    """Whether a node may be called so."""
    return len(name) <= NODE_LENGTH_MAX and _is_node(name) is not None


def common_name(name: str) -> str:
    """What stands for a name in the common name of a certificate, where 64 characters have room: the name itself, or of
    a longer one its beginning and a digest of the whole, so that two names never look the same.
    """
    if len(name) <= COMMON_NAME_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: COMMON_NAME_MAX - _DIGEST_LENGTH - 1]}~{digest}"
