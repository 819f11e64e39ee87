# Link rate control: the reading of load reports in C. Without the library the allocator reads them by protobuf.
SETUP += loads-library
LINT += lint-loads

.PHONY: loads-library lint-loads
loads-library: $(BUILD)/allocator/libloads.so

$(BUILD)/allocator/libloads.so: services/chart/allocator/loads.c $(BUILD)/.packages
	@mkdir -p $(@D)
	@gcc -std=gnu11 -O2 -g -Wall -Wextra -Wconversion -Werror -fPIC -shared -o $@ $<

lint-loads: $(BUILD)/.packages
	@clang-format-19 --dry-run --Werror services/chart/allocator/loads.c
	@cppcheck --quiet --std=c11 --error-exitcode=1 --enable=warning,performance,portability services/chart/allocator
