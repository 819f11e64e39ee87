# Interface definitions: Python and C code generated from proto/, lint and breaking check.
SETUP += proto
LINT += lint-proto

PROTO_FILES := $(sort $(wildcard proto/chart/v1/*.proto))
BUF := $(BUILD)/tools/buf

.PHONY: proto lint-proto
proto: $(BUILD)/.proto-python $(BUILD)/.proto-c

$(BUILD)/.proto-python: $(PROTO_FILES) $(VENV)/.requirements
	@mkdir -p services/chart/v1 $(BUILD)
	@rm -f services/chart/v1/*_pb2* && touch services/chart/v1/__init__.py
	@$(PYTHON) -m grpc_tools.protoc -I proto --plugin=protoc-gen-mypy=$(VENV)/bin/protoc-gen-mypy \
	    --plugin=protoc-gen-mypy_grpc=$(VENV)/bin/protoc-gen-mypy_grpc \
	    --python_out=services --grpc_python_out=services --mypy_out=quiet:services --mypy_grpc_out=quiet:services $(PROTO_FILES)
	@touch $@

# Stream messages only: the C agents do not speak gRPC. Nor do they read messages with optional fields, which protoc-c does
# not know (chart.platform-settings.v1).
STREAM_PROTO_FILES := $(shell grep -L -e '^service ' -e '^  optional ' $(PROTO_FILES))

$(BUILD)/.proto-c: $(PROTO_FILES) $(BUILD)/.packages
	@mkdir -p $(BUILD)/gen
	@protoc-c -I proto --c_out=$(BUILD)/gen $(STREAM_PROTO_FILES)
	@touch $@

$(BUF):
	@echo "proto: building buf"
	@mkdir -p $(@D) && GOBIN=$(@D) go install github.com/bufbuild/buf/cmd/buf@v1.47.2

lint-proto: $(BUF)
	@cd proto && $(BUF) lint
	@# Released messages are never changed in a way that an older reader would misunderstand.
	@if tag=$$(git describe --tags --abbrev=0 2>/dev/null); then \
	    cd proto && $(BUF) breaking --against "../.git#tag=$$tag,subdir=proto"; fi
