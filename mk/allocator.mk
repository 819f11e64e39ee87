# Link rate control: the reading of load reports in C. Without the library the allocator reads them by protobuf.
SETUP += loads-library
LINT += lint-loads
LONG += link-control-experiments

.PHONY: loads-library lint-loads
loads-library: $(BUILD)/allocator/libloads.so

$(BUILD)/allocator/libloads.so: dataplane/lib/loads/loads.c $(BUILD)/.packages
	@mkdir -p $(@D)
	@gcc -std=gnu11 -O2 -g -Wall -Wextra -Wconversion -Werror -fPIC -shared -o $@ $<

lint-loads: $(BUILD)/.packages
	@clang-format-19 --dry-run --Werror dataplane/lib/loads/loads.c
	@cppcheck --quiet --std=c11 --error-exitcode=1 --enable=warning,performance,portability dataplane/lib/loads

.PHONY: link-control-experiments
link-control-experiments: setup ## rate control, fairness, overlay, two paths, premium and classes; var/NAME
	@for name in rate-control user-sharing er-overlay diffserv-classes diffserv-premium diffserv-policing; do \
	    $(VENV)/bin/chart lab run $$name --out $(VAR)/$$name || exit 1; \
	done
	@$(VENV)/bin/chart lab run fairness --repeat 2 --out $(VAR)/fairness
	@$(VENV)/bin/chart lab run two-path-grid --out $(VAR)/two-path-grid
