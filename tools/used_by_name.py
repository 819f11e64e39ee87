"""Names that are used though no Python source says so, each group with its reason; read by vulture, never run.

Vulture (`make lint-unused`) looks at all sources, and once more without the tests: what only tests use is dead as well.
"""

from __future__ import annotations

from typing import Any

used: Any = None
_: Any

# Fields of REST answers and tokens: the dashboard, applications and standards name them (docs, web/openapi.json).
_ = (
    used.applied_at, used.ca_sha256, used.computed_at, used.customers, used.delivered_at, used.estimated_at,
    used.expires_in,
    used.explicit_rate_bps, used.next_attempt_at, used.receiver_id, used.rtt_mean_us, used.sender_id, used.started_at,
    used.start_lateness_max_us, used.start_lateness_p50_us, used.stated_at, used.token_type, used.updated_at,
    used.window_mean_segments, used.lease_draining_until, used.all_failed, used.planned_link_ids,
)  # fmt: skip
_ = (
    used.certificate_issued_at, used.certificate_revoked_at_us, used.revoked_at_us, used.revoked_because,
    used.used_at_us, used.variable, used.withdrawn_at, used.withdrawn_at_us,
)  # fmt: skip
# A JSON Web Key (RFC 7517).
_ = (used.alg, used.crv, used.kid, used.kty)
# Values of options that the gateway reads.
_ = (used.enforce, used.hour, used.naive, used.no_data, used.pi)
# Fields of experiments and topologies that are written, read or set through asdict, getattr or model_dump.
_ = (
    used.congestion_at_end, used.duplicated, used.goodput_change, used.limit_packets, used.loss_bad, used.loss_good,
    used.maximum_packets, used.maximum_probability, used.minimum_packets, used.joined_s, used.hops_mean_after,
    used.peers_mean_after, used.died,
)  # fmt: skip
# Fields of C structures (chart_lab.simulation.decide).
_ = (used.n_link_ids, used.selector_error)
# What aioquic reads: a transport parameter of ours, and the key of a certificate.
_ = (used.scone_supported, used.private_key)
# What libraries call or read: uvicorn, grpc, OpenTelemetry, asyncio, selectors, io, psycopg, html.parser.
_ = (used.capture_signals, used.should_exit)
_ = (used.datagram_received, used.error_received)
_ = (used.intercept_service, used.intercept_unary_unary, used.intercept_unary_stream)
_ = (used.should_sample, used.parent_context, used.get_description)
_ = (used.call_soon, used.run_in_executor, used.executor, used._timer_handle_cancelled)
_ = (used.get_map, used.writable, used.autocommit, used.handle_starttag, used.handle_data)
# The same: requests' session, http.server and socketserver.
_ = (used.trust_env, used.protocol_version, used.handle_error)
# Methods that gRPC calls by the name in the interface definition.
_ = (used.Configure, used.List, used.ListLinkRates)
# Held so that asyncio does not drop the task.
_ = (used._coordinator, used._review)
# Numbers of the signalling protocol, whole as in its page (docs/signalling.md).
_ = (used.EPOCH_IN_USE, used.UNKNOWN_SENDER, used.CONFIRM, used.RENEGOTIATE, used.CLOSE)
# Calls that the authority of the tests finds by the path (tests/support/memory_authority.py).
_ = (
    used._receipt_keys, used._authorisations, used._enrolments, used._identities, used._revocations, used._peers,
    used._next_hop_entries, used._next_hops, used._authorisation_policies,
)  # fmt: skip
# A fixture that is asked for by its name.
_ = (used.no_options,)
# Production code that tests use on purpose. The codec of signals is the reference that the C one is compared with.
_ = (used.encode_rate, used.next_sequence, used.epoch_due, used.Pair, used.retire)
# The clock of whoever tests a service, beside the interface that it implements.
_ = (used.FakeClock,)
# Vault's administration is whole: tests seal what an operator opens.
_ = (used.seal,)
# Models and yardsticks of the lab that its tests alone run.
_ = (
    used.TcpModel,
    used.jain_index,
    used.with_one_link,
    used.cores_since,
    used.skips_without_reason,
    used.noticed_as,
    used.BASE_RTT_MS,
)
# What typer reads of a command whose options are made from a table.
_ = (used.__signature__, used.__annotations__)
