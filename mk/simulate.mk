# The simulation of the control plane: the agent's decisions as a library, 200 seeds in `make test`, 10,000 apart.
SETUP += decide-library
CONTRACT += simulate
LONG += simulate-long

DECIDE_SOURCES := $(addprefix dataplane/agent/,grants/bounds.c grants/decide.c grants/decide_rates.c grants/decide_status.c \
    grants/egress.c     core/strmap.c)
SEEDS ?= 200
FIRST_SEED ?= 1
# Such as --resume --slice-s 600: some more of a series, as long as the code is the same.
SIMULATE_OPTIONS ?=

##@ Simulation
.PHONY: decide-library simulate simulate-long
decide-library: $(BUILD)/simulate/libdecide.so

$(BUILD)/simulate/libdecide.so: $(DECIDE_SOURCES) $(wildcard dataplane/agent/grants/decide*.h) dataplane/agent/grants/bounds.h dataplane/agent/grants/egress.h dataplane/agent/core/strmap.h
	@mkdir -p $(@D)
	@gcc -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -shared -Wl,--no-undefined -Idataplane -Idataplane/agent -o $@ $(DECIDE_SOURCES)

simulate: python proto decide-library ## simulate admission, link control and agents under faults (SEEDS, FIRST_SEED)
	@$(PYTHON) -m chart_lab.simulation --seeds $(SEEDS) --first-seed $(FIRST_SEED) --out $(VAR)/simulate $(SIMULATE_OPTIONS)

simulate-long: setup
	@$(PYTEST) -m slow lab/tests/simulation
	@$(PYTHON) -m chart_lab.simulation --seeds 10000 --first-seed 1 --out $(VAR)/simulate $(SIMULATE_OPTIONS)
