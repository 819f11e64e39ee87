"""The authority of a domain: authorisations, keys of signals and records, certificates, next hops, receipts."""
