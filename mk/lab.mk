# The lab's C programs: the link emulator and the traffic tools; the Python part is linted and tested by mk/python.mk.
SETUP += lab
LINT += lint-lab
UNIT += unit-lab
LONG += throughput-grid throughput-grid-installed fair-share middleboxes verify-failover overlay-test

##@ Lab
.PHONY: lab lint-lab unit-lab throughput-grid throughput-grid-installed fair-share middleboxes routing-peers failover verify-failover overlay-test
lab: $(BUILD)/.packages ## build the link emulator and the traffic tools of the lab
	@$(MAKE) -C lab/linkem BUILD=$(BUILD) all
	@$(MAKE) -C lab/tools BUILD=$(BUILD) all

lint-lab: $(BUILD)/.packages
	@$(MAKE) -C lab/linkem BUILD=$(BUILD) lint
	@$(MAKE) -C lab/tools BUILD=$(BUILD) lint

unit-lab: $(BUILD)/.packages
	@$(MAKE) -C lab/linkem BUILD=$(BUILD) unit

throughput-grid: setup ## the full grid of loss and delay, both directions (1.7 hours); results in var/throughput-grid
	@$(VENV)/bin/chart lab run throughput-grid --direction upload,download --out $(VAR)/throughput-grid

throughput-grid-installed: setup ## the same on the platform as it is installed, uploads (65 minutes); var/throughput-grid-installed
	@$(VENV)/bin/chart lab run throughput-grid --installed --out $(VAR)/throughput-grid-installed

middleboxes: setup ## 10,000 short connections through firewall, NAT and dropped options; results in var/middleboxes
	@$(VENV)/bin/chart lab run middleboxes --out $(VAR)/middleboxes

fair-share: setup ## flows beside each other (7 minutes); results in var/fair-share
	@$(VENV)/bin/chart lab run fair-share --out $(VAR)/fair-share

# What the experiments with the overlay compare with: FRRouting.
routing-peers: $(BUILD)/.packages-routing ## install FRRouting, which `chart lab run failover` compares the overlay with

$(BUILD)/.packages-routing: deploy/packages-routing.txt deploy/install-packages
	@mkdir -p $(@D)
	@deploy/install-packages deploy/packages-routing.txt
	@touch $@

failover: setup routing-peers ## outages when paths are cut, the overlay beside OSPF and BFD (14 minutes); results in var/failover
	@$(VENV)/bin/chart lab run failover --out $(VAR)/failover

verify-failover: $(VENV)/.installed
	@if $(MAKE) routing-peers; then \
	    $(MAKE) failover; else $(call left_out,failover,FRRouting cannot be installed here); fi

overlay-test: setup kafka ## the overlay of the platform as it is installed: joins, a silent failure, a node that leaves (root, 2 minutes)
	@$(VENV)/bin/python -m pytest -q tests/faults/test_overlay.py
