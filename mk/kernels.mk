# The agent on other kernels than this machine's, under QEMU; which kernels are claimed, and where that stands.
LINT += lint-kernels
LONG += verify-kernels verify-netem-witness

##@ Kernels
.PHONY: kernel-test netem-witness verify-kernels verify-netem-witness lint-kernels kernels-statement
kernel-test: $(VENV)/.installed dataplane $(BUILD)/.packages-kernels ## the agent on other kernels over netem (KERNELS, RATE_MBIT, DELAY_MS one way, LOSS each way, SECONDS; RECORD=1 claims them); 12 minutes, var/kernels/report.json
	@PYTHONPATH=tools $(PYTHON) deploy/kernels/kernel_test.py --build $(BUILD) --report $(VAR)/kernels/report.json \
	    $(if $(KERNELS),--kernels "$(KERNELS)") $(if $(RATE_MBIT),--rate-mbit $(RATE_MBIT)) \
	    $(if $(DELAY_MS),--delay-ms $(DELAY_MS)) $(if $(LOSS),--loss $(LOSS)) $(if $(SECONDS),--seconds $(SECONDS)) \
	    $(if $(RECORD),--record)
	@$(if $(RECORD),$(PYTHON) tools/kernels.py)

verify-kernels: $(VENV)/.installed
	@if $(MAKE) $(BUILD)/.packages-kernels; then \
	    $(MAKE) kernel-test; else $(call left_out,kernel-test,QEMU cannot be installed here); fi

netem-witness: $(VENV)/.installed dataplane lab $(BUILD)/.packages-kernels ## linkem beside netem in one guest with a virtual clock; goes on where it ended (JOBS guests at a time, at most CELLS now); 40 minutes on two idle processors, var/kernels/report.json
	@PYTHONPATH=tools $(PYTHON) deploy/kernels/netem_witness.py --build $(BUILD) --report $(VAR)/kernels/report.json \
	    $(if $(JOBS),--jobs $(JOBS)) $(if $(CELLS),--cells $(CELLS))

verify-netem-witness: $(VENV)/.installed
	@if $(MAKE) $(BUILD)/.packages-kernels; then \
	    $(MAKE) netem-witness JOBS=2; else $(call left_out,netem-witness,QEMU cannot be installed here); fi

$(BUILD)/.packages-kernels: deploy/kernels/packages.txt deploy/install-packages
	@mkdir -p $(@D)
	@deploy/install-packages deploy/kernels/packages.txt
	@touch $@

kernels-statement: $(VENV)/.installed ## write the claimed kernels of deploy/kernels/supported.json where they are named
	@$(PYTHON) tools/kernels.py

lint-kernels: $(VENV)/.installed
	@$(PYTHON) tools/kernels.py --check
