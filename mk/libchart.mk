# The C library of applications (libchart) and chart-blast.
SETUP += libchart
LINT += lint-libchart
UNIT += unit-libchart

LIBCHART := $(MAKE) -C clients/c BUILD=$(BUILD)

##@ Clients in C
.PHONY: libchart lint-libchart unit-libchart
libchart: packages ## build libchart and chart-blast (build/clients)
	+@$(LIBCHART) all

lint-libchart: packages
	+@$(LIBCHART) lint

unit-libchart: packages
	+@$(LIBCHART) unit
