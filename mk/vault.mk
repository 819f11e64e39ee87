# HashiCorp Vault for tests and trials on this machine. It is not part of `make setup`: the build takes about ten minutes,
# and `make verify-all` does it. A `vault` on the PATH is used as it is.
LONG += verify-vault
VAULT_BUILD := $(BUILD)/vault
VAULT_TESTS := -m contract -k vault services/tests/authority

##@ Security
.PHONY: vault verify-vault
vault: $(BUILD)/bin/vault ## build Vault from its published source (10 min), for tests against the real thing

verify-vault: setup
	@if $(MAKE) vault; then $(PYTEST) $(VAULT_TESTS); \
	    else $(call left_out,vault,it is not on the PATH and cannot be built here); fi

$(BUILD)/bin/vault: deploy/vault/main.go deploy/vault/go.mod
	@mkdir -p $(@D) $(VAULT_BUILD)
	@if command -v vault >/dev/null; then \
	    echo "vault: using $$(command -v vault)"; ln -sf "$$(command -v vault)" $@; \
	else \
	    echo "vault: building it, this takes about ten minutes"; \
	    cp deploy/vault/main.go deploy/vault/go.mod $(VAULT_BUILD)/; \
	    cd $(VAULT_BUILD) && go mod tidy -e >tidy.log 2>&1 && go build -trimpath -ldflags "-s -w" -o $(BUILD)/bin/vault.new . \
	        && mv $(BUILD)/bin/vault.new $@; \
	fi
