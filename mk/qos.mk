# The codec of the signalling protocol: its C tests, the BPF probe, fuzzing. The Python side runs with all other Python tests.
LINT += lint-qos
UNIT += unit-qos
LONG += fuzz-qos

QOS := $(MAKE) -C dataplane/lib/qos BUILD=$(BUILD) PYTHON=$(PYTHON)

##@ Signalling
.PHONY: lint-qos unit-qos probe-qos fuzz-qos vectors-qos
lint-qos: packages python
	+@$(QOS) lint
	@$(VENV)/bin/ruff check dataplane/lib/qos
	@$(VENV)/bin/ruff format --check dataplane/lib/qos

unit-qos: packages python proto
	+@$(QOS) all unit fuzz-corpus

probe-qos: packages ## run the codec in a BPF program once and print what a signal costs (root)
	+@$(QOS) probe

fuzz-qos: packages ## fuzz the parsers of signals (FUZZ_SECONDS each, 60)
	+@$(QOS) fuzz

vectors-qos: python ## write the signalling test vectors anew
	+@$(QOS) vectors
