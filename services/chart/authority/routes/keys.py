"""Keys of signals and of records."""

from __future__ import annotations

import base64
import re
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from chart.authority.context import Anyone, Authority, Caller, Context, forbidden, invalid, of, peer
from chart.authority.keys import RECORDS, HeldKey, not_enrolled
from chart.authority.schemas import KeyEpoch, KeySet, StreamKeySet
from chart.common import names
from chart.common.problems import ProblemError

router = APIRouter(prefix="/v1")
# Served by `get_keys` itself, outside the router: see there.
PAIR_PATH = "/v1/keys/{sender}/{receiver}"

_ELEMENT = rf"{names.NODE}(@[a-z0-9.-]{{1,100}})?"
_is_element = re.compile(_ELEMENT).fullmatch
Element = Annotated[str, Path(pattern=f"^{_ELEMENT}$", max_length=names.NODE_LENGTH_MAX + 101)]
Start = Annotated[
    bool, Query(description="The caller has started anew: it lost its sequence or window, so a new epoch is made.")
]
# Services that check records hold the keys of all nodes.
READERS = frozenset({"service/records"})


async def get_keys(request: Request) -> Response:
    """Current and previous key of an ordered pair, for its two ends only (``?start=true``: see `Start`).

    The call that every element makes again and again: a plain endpoint that checks its few parameters by itself takes a
    third of the time that the framework's own look at each of them does.

    Raises:
        ProblemError: 401, 403 not an end of the pair, 404 unknown, 422 not a name, 503 no key to be had.
    """
    authority = of(request)
    who = peer(authority, request)
    sender, receiver = request.path_params["sender"], request.path_params["receiver"]
    for name, value in (("sender", sender), ("receiver", receiver)):
        if not _is_element(value):
            raise invalid(name, f"{name} is not the name of an element: {_ELEMENT}.")
    wanted = request.query_params.get("start", "false").lower()
    if wanted not in ("true", "false", "1", "0"):
        raise invalid("start", "start must be true or false.")
    if who.element is None or who.element not in (sender, receiver):
        raise forbidden(f"The keys of {sender} > {receiver} are for these two only.")
    if sender == receiver:
        raise forbidden("An element signs nothing for itself.")
    _check_border(authority, who, sender, receiver)
    ids = await _ids(authority, sender, receiver)
    demanded_by = who.actor if wanted in ("true", "1") else None
    held = await authority.keys.of_pair(sender, receiver, demanded_by=demanded_by)
    answer = KeySet(
        sender=sender,
        receiver=receiver,
        sender_id=ids[0],
        receiver_id=ids[1],
        epochs=[_epoch(key) for key in held],
        renew_at_us=held[-1].epoch.renew_at_us,
        now_us=authority.clock.now_us(),
    )
    return Response(answer.model_dump_json(), media_type="application/json")


def _check_border(authority: Authority, who: Caller, sender: str, receiver: str) -> None:
    """Keys across a border need both operators' word, and are kept by the sender's domain."""
    foreign = [name for name in (sender, receiver) if "@" in name]
    if not foreign:
        return
    peer = authority.trust.peers.get(foreign[0].partition("@")[2])
    if len(foreign) == 2 or peer is None or (sender, receiver) not in peer.pairs:
        raise forbidden(f"{sender} > {receiver} is no pair that the operators of both domains entered.")
    if foreign[0] == sender:
        raise ProblemError(
            421, "Other authority", f"The keys of {sender} are kept by the authority of {peer.domain}.",
            suggestions=[f"Ask {peer.url}/v1/keys/... there, with the certificate of {who.identity.short}."],
        )  # fmt: skip


async def _ids(authority: Authority, sender: str, receiver: str) -> tuple[int | None, int | None]:
    """Element ids; a local end that is not enrolled (any more) has no keys."""
    for name in (sender, receiver):
        if "@" not in name and name not in authority.trust.elements:
            # It may have been enrolled at another replica a moment ago.
            await authority.trust.refresh()
            if name not in authority.trust.elements:
                raise not_enrolled(name)
    known = authority.trust.elements
    return known.get(sender), known.get(receiver)


@router.get("/stream-keys/{node}")
async def get_stream_keys(node: Element, authority: Context, who: Anyone, start: Start = False) -> StreamKeySet:
    """Keys under which a node authenticates its records: for the node, and for the services that check them."""
    if not ((who.element == node) or (who.local and who.identity.short in READERS)):
        raise forbidden(f"The keys of the records of {node} are for {node} and for services that check them.")
    await _ids(authority, node, node)
    held = await authority.keys.of_pair(node, RECORDS, demanded_by=who.actor if start and who.element == node else None)
    return StreamKeySet(
        node=node,
        epochs=[_epoch(key) for key in held],
        renew_at_us=held[-1].epoch.renew_at_us,
        now_us=authority.clock.now_us(),
    )


@router.get("/elements")
async def list_elements(authority: Context, who: Anyone) -> dict[str, int]:
    """Names and sender ids of the enrolled nodes."""
    if not who.local:
        raise forbidden("Elements are disclosed to members of this domain only.")
    await authority.trust.refresh()
    return authority.trust.elements


def _epoch(held: HeldKey) -> KeyEpoch:
    return KeyEpoch(
        epoch=held.epoch.wire,
        generation=held.epoch.generation,
        key=base64.b64encode(held.key).decode(),
        sign_from_us=held.epoch.sign_from_us,
        expires_at_us=held.epoch.expires_at_us,
    )
