# Sensors in C, and the responder that two-ended ones speak to.
SETUP += sensors
LINT += lint-sensors
UNIT += unit-sensors
LONG += fuzz-sensors

SENSORS := $(MAKE) -C sensors BUILD=$(BUILD) PYTHON=$(PYTHON)

##@ Sensors
.PHONY: sensors lint-sensors unit-sensors fuzz-sensors
sensors: packages ## build the sensor programs into build/sensors
	+@$(SENSORS) all

lint-sensors: packages
	+@$(SENSORS) lint

unit-sensors: sensors
	+@$(SENSORS) unit fuzz-corpus

fuzz-sensors: packages ## fuzz everything in the sensors that parses outside bytes (FUZZ_SECONDS each, 60)
	+@$(SENSORS) fuzz
