# What is tried against the authority, with figures. It measures, so it runs by itself and not in `make test`.
LONG += threat-test fuzz-authority
UNIT += fuzz-authority-corpus

.PHONY: threat-test fuzz fuzz-authority fuzz-authority-corpus
threat-test: packages python proto ## forgeries, stolen certificates, rotation, revocation, kill -9; writes var/threats/report.json
	@cd tests && $(PYTHON) -m threats.threats --out $(VAR)/threats

# The agent's reading of what the authority answers, with the address and undefined behaviour sanitizers.
AUTHORITY_FUZZ := $(BUILD)/dataplane/fuzz/fuzz_authority
AUTHORITY_FUZZ_SOURCES := dataplane/tests/fuzz_authority.c \
    $(addprefix dataplane/agent/,authority_state.c signal_file.c decide.c decide_rates.c decide_status.c selectors.c strmap.c)

$(AUTHORITY_FUZZ): $(AUTHORITY_FUZZ_SOURCES) $(wildcard dataplane/agent/*.h)
	@mkdir -p $(@D)
	@clang-19 -std=gnu11 -O1 -g -Wall -Wextra -Werror -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
	    -Idataplane/agent -Idataplane/bpf -Idataplane/lib/qos -o $@ $(AUTHORITY_FUZZ_SOURCES) -lcjson -lcrypto -lm

fuzz-authority-corpus: packages $(AUTHORITY_FUZZ)
	@$(AUTHORITY_FUZZ) -runs=0 dataplane/tests/corpus/fuzz_authority 2>&1 | tail -1

fuzz-authority: packages $(AUTHORITY_FUZZ) ## fuzz what the agent reads of the authority (FUZZ_SECONDS, 600)
	@mkdir -p $(AUTHORITY_FUZZ)-corpus
	@$(AUTHORITY_FUZZ) -max_total_time=$${FUZZ_SECONDS:-600} -max_len=4096 -print_final_stats=1 -verbosity=0 \
	    -artifact_prefix=$(AUTHORITY_FUZZ)- $(AUTHORITY_FUZZ)-corpus dataplane/tests/corpus/fuzz_authority

fuzz: ## fuzz every parser of outside bytes, one after the other (FUZZ_SECONDS each, 600)
	@for part in qos sensors tunnel authority; do \
	    FUZZ_SECONDS=$${FUZZ_SECONDS:-600} $(MAKE) fuzz-$$part || exit 1; \
	done
